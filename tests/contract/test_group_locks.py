"""A transaction that holds a group, or stops while it does, delays the messages of this group and no others."""

import asyncio
from contextlib import AbstractAsyncContextManager, suppress

import pytest

from app.broker.ports.attempts import Attempt
from app.broker.ports.maintaining import Redrive, UnlockedRow
from app.broker.ports.store import Store
from app.domain.history import Event
from app.domain.instant import MINUTE
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import StoreUnavailable
from app.store.shared.groups import bucket_of
from tests.bounds import bounded
from tests.brokers import dead_letter_all
from tests.contract.store_fixture import ServerFixture, abandonment, bodies, completion, draft, expiry, token
from tests.contract.test_groups import complete, counts, grouped, send

ON_EACH_SERVER = pytest.mark.parametrize("store_fixture", ["postgresql", "mariadb"], indirect=True)
ON_POSTGRESQL = pytest.mark.parametrize(
    "store_fixture", ["postgresql", pytest.param("mariadb", marks=pytest.mark.nightly)], indirect=True
)
"""For most tests in which statements wait for a held row until they fail. MariaDB lets each wait for several seconds."""


@pytest.fixture
async def fifo(store_fixture: ServerFixture) -> Queue:
    """An empty queue with one message of a group in flight."""
    return await store_fixture.queue(QueueSettings(group_in_flight=1))


def hold(store_fixture: ServerFixture, queue: Queue, group_id: str) -> AbstractAsyncContextManager[None]:
    """Hold a group, as a transaction does whose process has stopped."""
    bucket = bucket_of((queue.id, group_id))
    return store_fixture.open_transaction(f"SELECT bucket FROM group_lock WHERE bucket = {bucket} FOR UPDATE")


def hold_message(store_fixture: ServerFixture, number: int) -> AbstractAsyncContextManager[None]:
    """Hold a message, as a transaction does whose process has stopped."""
    return store_fixture.open_transaction(f"SELECT 1 FROM message WHERE sequence_number = {number} FOR UPDATE")


@ON_EACH_SERVER
async def test_a_sender_waits_for_another_transaction_in_its_group(store_fixture: ServerFixture, fifo: Queue) -> None:
    async with hold(store_fixture, fifo, "a"):
        sending = asyncio.ensure_future(send(store_fixture, fifo, "a", b"1"))
        await store_fixture.wait_until_blocked()
    await sending
    assert bodies(await store_fixture.claim(fifo)) == [b"1"]


@ON_EACH_SERVER
@pytest.mark.parametrize("is_once", [False, True], ids=["send", "send once"])
async def test_a_send_that_is_checked_for_duplicates_waits_as_long(store_fixture: ServerFixture, is_once: bool) -> None:
    settings = QueueSettings(group_in_flight=1, duplicate_detection_window=MINUTE)
    queue = await store_fixture.queue(settings)
    checked = grouped(queue, "a", duplicate_window=MINUTE)
    attempt = Attempt(b"k" * 32, b"f" * 32, MINUTE)
    store = store_fixture.store
    async with hold(store_fixture, queue, "a"):
        sending = asyncio.ensure_future(store.send_or_replay([checked], attempt) if is_once else store.send([checked]))
        await store_fixture.wait_until_blocked()
    await sending
    assert await counts(store_fixture, queue) == (1, 0, 0)


@ON_EACH_SERVER
async def test_a_held_group_fails_no_send_to_another_one(store_fixture: ServerFixture, fifo: Queue) -> None:
    async with hold(store_fixture, fifo, "a"):
        sends = [asyncio.ensure_future(send(store_fixture, fifo, group, b"1")) for group in "ab"]
        held, other = await asyncio.gather(*sends, return_exceptions=True)
    assert isinstance(held, StoreUnavailable)
    assert isinstance(other, list)


@ON_POSTGRESQL
async def test_a_held_group_fails_no_settlement_in_another_one(store_fixture: ServerFixture, fifo: Queue) -> None:
    for group in "ab":
        await send(store_fixture, fifo, group, b"1", b"2")
    of_a, of_b = await store_fixture.claim(fifo)
    async with hold(store_fixture, fifo, "a"):
        requests = [asyncio.ensure_future(complete(store_fixture, fifo, message)) for message in (of_a, of_b)]
        held, other = await asyncio.gather(*requests, return_exceptions=True)
    assert isinstance(held, StoreUnavailable)
    assert other == [True]


@ON_POSTGRESQL
async def test_a_held_group_keeps_no_other_lock_from_ending(store_fixture: ServerFixture, fifo: Queue) -> None:
    plain = await store_fixture.queue()
    await send(store_fixture, fifo, "a", b"1", b"2")
    await store_fixture.send(plain, b"1")
    (of_a,), (of_plain,) = await store_fixture.claim(fifo), await store_fixture.claim(plain)
    await store_fixture.advance_time(60)
    delayed = expiry(of_a, state=MessageState.SCHEDULED, delay=MINUTE, is_in_group=True)
    async with hold(store_fixture, fifo, "a"):
        assert await store_fixture.store.release([delayed, expiry(of_plain)]) == [False, True]
    assert await store_fixture.store.release([delayed]) == [True]


@ON_POSTGRESQL
async def test_a_held_blocked_message_keeps_no_other_lock_from_ending(
    store_fixture: ServerFixture, fifo: Queue
) -> None:
    plain = await store_fixture.queue()
    _, blocked = await send(store_fixture, fifo, "a", b"1", b"2")
    await store_fixture.send(plain, b"1")
    (of_a,), (of_plain,) = await store_fixture.claim(fifo), await store_fixture.claim(plain)
    await store_fixture.advance_time(60)
    delayed = expiry(of_a, state=MessageState.SCHEDULED, delay=MINUTE, is_in_group=True)
    async with hold_message(store_fixture, blocked):
        assert await store_fixture.store.release([delayed, expiry(of_plain)]) == [False, True]
    assert await store_fixture.store.release([delayed]) == [True]


@ON_EACH_SERVER
async def test_a_held_group_keeps_no_other_message_from_falling_due(store_fixture: ServerFixture, fifo: Queue) -> None:
    plain = await store_fixture.queue()
    for group in "ab":
        await send(store_fixture, fifo, group, b"%b 1" % group.encode(), delay=MINUTE)
    await store_fixture.send(plain, b"1", delay=MINUTE)
    await store_fixture.advance_time(61)
    async with hold(store_fixture, fifo, "a"):
        promoted = await store_fixture.store.promote(10)
        assert {queue_id: len(numbers) for queue_id, numbers in promoted.by_queue.items()} == {fifo.id: 1, plain.id: 1}
        assert promoted.next_due_in == 0
        assert bodies(await store_fixture.claim(fifo)) == [b"b 1"]
        assert len(await store_fixture.claim(plain)) == 1
    await store_fixture.store.promote(10)
    assert bodies(await store_fixture.claim(fifo)) == [b"a 1"]


@ON_POSTGRESQL
async def test_a_page_of_due_messages_of_held_groups_delays_no_others(
    store_fixture: ServerFixture, fifo: Queue
) -> None:
    plain = await store_fixture.queue()
    for group in "ab":
        await send(store_fixture, fifo, group, b"1", b"2", delay=MINUTE)
    await send(store_fixture, fifo, "c", b"c", delay=MINUTE)
    await store_fixture.send(plain, b"1", delay=MINUTE)
    await store_fixture.advance_time(61)
    async with hold(store_fixture, fifo, "a"), hold(store_fixture, fifo, "b"):
        promoted = await store_fixture.store.promote(2)
        assert {queue_id: len(numbers) for queue_id, numbers in promoted.by_queue.items()} == {fifo.id: 1, plain.id: 1}
        assert promoted.next_due_in == 0
        assert bodies(await store_fixture.claim(fifo)) == [b"c"]
        assert bodies(await store_fixture.claim(plain)) == [b"1"]
    await store_fixture.store.promote(10)
    assert bodies(await store_fixture.claim(fifo)) == [b"1", b"1"]


@ON_POSTGRESQL
async def test_a_held_group_keeps_no_other_message_from_expiring(store_fixture: ServerFixture, fifo: Queue) -> None:
    plain = await store_fixture.queue()
    await send(store_fixture, fifo, "a", b"1", ttl=MINUTE)
    await store_fixture.send(plain, b"1", ttl=MINUTE)
    await store_fixture.advance_time(61)
    expired = await store_fixture.store.expired_messages(10)
    async with hold(store_fixture, fifo, "a"):
        ended = await store_fixture.store.dead_letter(expired, "ttl_expired")
    assert {row.queue_id for row, is_ended in zip(expired, ended, strict=True) if is_ended} == {plain.id}


MANY = 60
"""Messages. Trying each alone would take a second for each of them."""


@ON_POSTGRESQL
async def test_messages_of_a_held_group_are_tried_together_when_they_expire(store_fixture: ServerFixture) -> None:
    """The next read leaves the group out, once."""
    queue, plain = await store_fixture.queue(QueueSettings(group_in_flight=MANY)), await store_fixture.queue()
    await send(store_fixture, queue, "a", *[b"a"] * MANY, ttl=MINUTE)
    await store_fixture.send(plain, b"1", ttl=2 * MINUTE)
    await store_fixture.advance_time(121)
    expired = await store_fixture.store.expired_messages(MANY)
    assert {row.queue_id for row in expired} == {queue.id}
    async with hold(store_fixture, queue, "a"), asyncio.timeout(MANY):
        assert await store_fixture.store.dead_letter(expired, "ttl_expired") == [False] * MANY
        others = await store_fixture.store.expired_messages(MANY)
        assert [row.queue_id for row in others] == [plain.id]
    assert await store_fixture.store.expired_messages(MANY) == expired
    assert await store_fixture.store.dead_letter(expired, "ttl_expired") == [True] * MANY


@ON_POSTGRESQL
async def test_locks_of_a_held_group_that_have_ended_are_tried_together(store_fixture: ServerFixture) -> None:
    queue, plain = await store_fixture.queue(QueueSettings(group_in_flight=2 * MANY)), await store_fixture.queue()
    await send(store_fixture, queue, "a", *[b"a"] * 2 * MANY)
    await send(store_fixture, queue, "b", b"b")
    await store_fixture.send(plain, b"1")
    locked = await store_fixture.claim(queue, 2 * MANY + 1)
    (of_plain,) = await store_fixture.claim(plain)
    await store_fixture.advance_time(60)
    later = [expiry(one, state=MessageState.SCHEDULED, delay=MINUTE, is_in_group=True) for one in locked]
    async with hold(store_fixture, queue, "a"), asyncio.timeout(MANY):
        freed = await store_fixture.store.release([*later, expiry(of_plain)])
    assert freed == [*(one.envelope.group_id == "b" for one in locked), True]
    assert await store_fixture.store.release(later[:-1]) == [True] * 2 * MANY


@ON_POSTGRESQL
async def test_a_page_of_ended_locks_of_a_held_group_delays_no_others(store_fixture: ServerFixture) -> None:
    """The next read leaves the group out, once."""
    queue, plain = await store_fixture.queue(QueueSettings(group_in_flight=MANY)), await store_fixture.queue()
    await send(store_fixture, queue, "a", *[b"a"] * MANY)
    of_a = await store_fixture.claim(queue)
    await store_fixture.advance_time(1)
    await send(store_fixture, queue, "b", b"b")
    await store_fixture.send(plain, b"1")
    (of_b,), (of_plain,) = await store_fixture.claim(queue), await store_fixture.claim(plain)
    await store_fixture.advance_time(60)
    tokens = {token(message) for message in of_a}
    assert {lock.token for lock in await store_fixture.store.expired_locks(MANY)} == tokens
    async with hold(store_fixture, queue, "a"), asyncio.timeout(MANY):
        moves = [expiry(one, state=MessageState.SCHEDULED, delay=MINUTE, is_in_group=True) for one in of_a]
        assert await store_fixture.store.release(moves) == [False] * MANY
        others = await store_fixture.store.expired_locks(MANY)
        assert [lock.token for lock in others] == [token(of_b), token(of_plain)]
    assert {lock.token for lock in await store_fixture.store.expired_locks(MANY)} == tokens
    assert await store_fixture.store.release(moves) == [True] * MANY


async def dead_lettered(store_fixture: ServerFixture, queue: Queue, target: Queue, groups: str) -> list[Redrive]:
    """Dead-letter a message of each of these groups in a queue without a limit. Return their redrives."""
    drafts = [draft(queue, envelope=Envelope(f"{place}", group_id=group)) for place, group in enumerate(groups)]
    receipts = await store_fixture.store.send(drafts)
    assert await dead_letter_all(store_fixture.store, queue) == len(groups)
    rows = [UnlockedRow(receipt.sequence_number, queue.id, MessageState.DEAD_LETTERED) for receipt in receipts]
    return [Redrive(row, target.id) for row in rows]


@ON_POSTGRESQL
async def test_messages_that_enter_a_held_group_are_redriven_together(
    store_fixture: ServerFixture, fifo: Queue
) -> None:
    plain = await store_fixture.queue()
    redrives = await dead_lettered(store_fixture, plain, fifo, "a" * MANY + "b")
    async with hold(store_fixture, fifo, "a"), asyncio.timeout(MANY):
        assert await store_fixture.store.redrive(redrives) == [False] * MANY + [True]


@ON_POSTGRESQL
async def test_a_target_that_is_deleted_while_a_group_is_held_leaves_the_other_messages(
    store_fixture: ServerFixture, fifo: Queue
) -> None:
    """What has moved is counted. The other messages stay where they are."""
    plain = await store_fixture.queue()
    redrives = await dead_lettered(store_fixture, plain, fifo, "bac")
    async with hold(store_fixture, fifo, "a"):
        redriving = asyncio.ensure_future(store_fixture.store.redrive(redrives))
        for _ in bounded("the first message moves alone"):
            if await store_fixture.store.read(fifo.id, redrives[0].row.sequence_number) is not None:
                break
            await asyncio.sleep(0.01)
        await store_fixture.wait_until_blocked()
        assert await store_fixture.store.queues.delete(fifo)
        assert await redriving == [True, False, False]


@ON_POSTGRESQL
async def test_a_held_group_keeps_no_other_dead_letter_where_it_is(store_fixture: ServerFixture, fifo: Queue) -> None:
    (of_a,), (of_b,) = [await send(store_fixture, fifo, group, group.encode()) for group in "ab"]
    dead = [
        abandonment(one, state=MessageState.DEAD_LETTERED, is_in_group=True) for one in await store_fixture.claim(fifo)
    ]
    assert await store_fixture.store.move(dead) == [True, True]
    redrives = [Redrive(UnlockedRow(one, fifo.id, MessageState.DEAD_LETTERED), fifo.id) for one in (of_a, of_b)]
    async with hold(store_fixture, fifo, "a"):
        assert await store_fixture.store.redrive(redrives) == [False, True]
    assert await store_fixture.store.redrive(redrives) == [True, False]


@ON_EACH_SERVER
async def test_a_purge_of_a_held_group_is_refused(store_fixture: ServerFixture, fifo: Queue) -> None:
    await send(store_fixture, fifo, "a", b"1", b"2")
    (message,) = await store_fixture.claim(fifo)
    removal = completion(fifo, message, is_in_group=True)
    async with hold(store_fixture, fifo, "a"):
        with pytest.raises(StoreUnavailable):
            await store_fixture.store.remove_locked(fifo.id, [removal])
    assert await store_fixture.store.remove_locked(fifo.id, [removal]) == [True]


@ON_EACH_SERVER
async def test_a_purge_that_waits_for_a_group_holds_no_row_of_its_queue(
    store_fixture: ServerFixture, fifo: Queue
) -> None:
    await send(store_fixture, fifo, "a", b"1", b"2")
    (message,) = await store_fixture.claim(fifo)
    removal = completion(fifo, message, is_in_group=True)
    async with hold(store_fixture, fifo, "a"):
        purging = asyncio.ensure_future(store_fixture.store.remove_locked(fifo.id, [removal]))
        await store_fixture.wait_until_blocked()
        free = await store_fixture.execute(f"SELECT id FROM queue WHERE id = {fifo.id} FOR UPDATE SKIP LOCKED")
    assert free == [(fifo.id,)]
    assert await purging == [True]


@ON_POSTGRESQL
async def test_a_cancellation_in_a_held_group_is_refused(store_fixture: ServerFixture, fifo: Queue) -> None:
    (number,) = await send(store_fixture, fifo, "a", b"1")
    message = await store_fixture.store.read(fifo.id, number)
    assert message is not None
    async with hold(store_fixture, fifo, "a"):
        with pytest.raises(StoreUnavailable):
            await store_fixture.store.cancel(message, fifo)
    assert await store_fixture.store.cancel(message, fifo)


@ON_POSTGRESQL
async def test_a_restore_into_a_held_group_is_refused(store_fixture: ServerFixture, fifo: Queue) -> None:
    (number,) = await send(store_fixture, fifo, "a", b"1")
    message = await store_fixture.store.read(fifo.id, number)
    assert message is not None
    assert await store_fixture.store.cancel(message, fifo)
    async with hold(store_fixture, fifo, "a"):
        with pytest.raises(StoreUnavailable):
            await store_fixture.store.restore(fifo, [number])
    assert len(await store_fixture.store.restore(fifo, [number])) == 1


@ON_EACH_SERVER
async def test_a_second_change_during_an_admission_is_not_lost(store_fixture: ServerFixture, fifo: Queue) -> None:
    await send(store_fixture, fifo, "a", b"1", b"2", b"3", b"4")
    two = await store_fixture.store.queues.change(fifo, QueueSettings(group_in_flight=2))
    assert two is not None
    async with hold(store_fixture, fifo, "a"):
        admitting = asyncio.ensure_future(store_fixture.store.admit_after_changes(100))
        await store_fixture.wait_until_blocked()
        assert await store_fixture.store.queues.change(two, QueueSettings(group_in_flight=3)) is not None
    with suppress(StoreUnavailable):
        await admitting
    while not await store_fixture.store.admit_after_changes(100):
        pass
    assert await counts(store_fixture, fifo) == (3, 0, 1)


@ON_EACH_SERVER
async def test_two_servers_that_end_a_limit_release_each_message_once(
    store_fixture: ServerFixture, stores: list[Store]
) -> None:
    queue = await store_fixture.queue(QueueSettings(group_in_flight=1, history=True))
    _, second, third = await send(store_fixture, queue, "a", b"1", b"2", b"3")
    assert await store_fixture.store.queues.change(queue, QueueSettings(history=True)) is not None
    async with hold_message(store_fixture, second):
        passes = [asyncio.ensure_future(store.admit_after_changes(100)) for store in stores]
        await asyncio.wait(passes, timeout=0.2)
    await asyncio.gather(*passes)
    while not await store_fixture.store.admit_after_changes(100):
        pass
    assert await counts(store_fixture, queue) == (3, 0, 0)
    for number in (second, third):
        events = [event.event for event in await store_fixture.store.history(queue.id, number, 0, 10)]
        assert events.count(Event.ADMITTED) == 1


@ON_EACH_SERVER
async def test_a_held_blocked_message_is_released_later_after_the_end_of_a_limit(
    store_fixture: ServerFixture, fifo: Queue
) -> None:
    _, second, _ = await send(store_fixture, fifo, "a", b"1", b"2", b"3")
    assert await store_fixture.store.queues.change(fifo, QueueSettings()) is not None
    async with hold_message(store_fixture, second):
        await store_fixture.store.admit_after_changes(100)
        assert await counts(store_fixture, fifo) == (2, 0, 1)
        await store_fixture.store.admit_after_changes(100)
    while not await store_fixture.store.admit_after_changes(100):
        pass
    assert await counts(store_fixture, fifo) == (3, 0, 0)
