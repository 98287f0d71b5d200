"""A purged or cancelled message is stored again once, as a new message with the old content."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from app.broker.ports.maintaining import UnlockedRow, Withdrawal
from app.broker.ports.sending import QueueGone
from app.domain.instant import DAY, HOUR, MINUTE, SECOND, Duration
from app.domain.message import BodyKind, Envelope, Message, MessageHeaders, MessageMetadata, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import ANY_LOCK, Outcome, Removal, token_of
from tests.contract.store_fixture import StoreFixture, completion, draft
from tests.contract.test_accepted_counts import assert_nothing_is_missing, counts

ENVELOPE = Envelope(
    "order-1",
    MessageHeaders("text/plain", "corr", "subject", "replies", "to", "00-1-2-01"),
    "group",
    b'{"n":1,"s":"\xc3\xa9"}',
)


async def purge(
    store_fixture: StoreFixture,
    queue: Queue,
    numbers: Sequence[int],
    outcome: Outcome = Outcome.PURGED,
    retention: Duration = DAY,
) -> None:
    """Move available messages to the archive."""
    rows = [UnlockedRow(number, queue.id, MessageState.AVAILABLE) for number in numbers]
    assert all(await store_fixture.store.withdraw([Withdrawal(row, queue.name, outcome, retention) for row in rows]))


async def restorable(store_fixture: StoreFixture, queue: Queue, after: int = 0) -> list[int]:
    found = await read_restorable(store_fixture, queue, after)
    return [message.sequence_number for message in found]


async def read_restorable(store_fixture: StoreFixture, queue: Queue, after: int = 0) -> list[MessageMetadata]:
    return await store_fixture.store.restorable(queue.name, 0, await store_fixture.store.now(), after, 100)


async def in_queue(store_fixture: StoreFixture, queue: Queue) -> list[Message]:
    return await store_fixture.store.browse(queue.id, list(MessageState), 0, 100)


@pytest.mark.parametrize("outcome", [Outcome.PURGED, Outcome.CANCELLED])
async def test_a_restored_message_is_a_new_one_with_the_old_content(
    store_fixture: StoreFixture, queue: Queue, outcome: Outcome
) -> None:
    sent = replace(draft(queue, b"\x00body"), envelope=ENVELOPE, body_kind=BodyKind.BYTES, priority=7)
    (receipt,) = await store_fixture.store.send([sent])
    (before,) = await in_queue(store_fixture, queue)
    ((digest,),) = await store_fixture.execute("SELECT content_digest FROM message")
    await purge(store_fixture, queue, [receipt.sequence_number], outcome=outcome)
    (again,) = await store_fixture.store.restore(queue, [receipt.sequence_number])
    (restored,) = await in_queue(store_fixture, queue)
    assert restored.sequence_number == again.sequence_number > receipt.sequence_number
    assert (restored.envelope, restored.body, restored.body_kind) == (before.envelope, before.body, before.body_kind)
    assert (restored.priority, restored.state, restored.expires_at) == (7, MessageState.AVAILABLE, None)
    assert await store_fixture.execute("SELECT content_digest FROM message") == [(digest,)]


async def test_a_message_is_restored_once(store_fixture: StoreFixture, queue: Queue) -> None:
    numbers = await store_fixture.send(queue, b"1", b"2", b"3")
    await purge(store_fixture, queue, numbers)
    assert await restorable(store_fixture, queue) == numbers
    assert len(await store_fixture.store.restore(queue, numbers[:2])) == 2
    assert len(await store_fixture.store.restore(queue, numbers)) == 1
    assert await store_fixture.store.restore(queue, numbers) == []
    assert await restorable(store_fixture, queue) == []
    assert [message.body for message in await in_queue(store_fixture, queue)] == [b"1", b"2", b"3"]


async def test_concurrent_restores_restore_each_message_once(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.open_another()
    try:
        for _ in range(5):
            numbers = await store_fixture.send(queue, *[b"%d" % n for n in range(20)])
            await purge(store_fixture, queue, numbers)
            stores = [store_fixture.store, other] * 4
            restored = await asyncio.gather(*(store.restore(queue, numbers) for store in stores))
            rest = await store_fixture.store.restore(queue, numbers)
            assert sum(map(len, restored)) + len(rest) == 20
            messages = await in_queue(store_fixture, queue)
            assert sorted(int(message.body) for message in messages) == list(range(20))
            await purge(store_fixture, queue, [message.sequence_number for message in messages], retention=0)
    finally:
        if other is not store_fixture.store:
            await other.close()


async def test_a_restored_message_can_be_purged_and_restored_again(store_fixture: StoreFixture, queue: Queue) -> None:
    numbers = await store_fixture.send(queue, b"1")
    for _ in range(2):
        await purge(store_fixture, queue, numbers)
        numbers = [receipt.sequence_number for receipt in await store_fixture.store.restore(queue, numbers)]
    assert [message.sequence_number for message in await in_queue(store_fixture, queue)] == numbers


async def test_messages_with_another_end_are_not_restorable(store_fixture: StoreFixture, queue: Queue) -> None:
    completed, expired, unarchived = await store_fixture.send(queue, b"1", b"2", b"3")
    (message,) = await store_fixture.claim(queue, 1)
    assert await store_fixture.store.remove([completion(queue, message)]) == [True]
    await purge(store_fixture, queue, [expired], outcome=Outcome.EXPIRED)
    await purge(store_fixture, queue, [unarchived], retention=0)
    assert await restorable(store_fixture, queue) == []
    assert await store_fixture.store.restore(queue, [completed, expired, unarchived]) == []


async def test_a_purged_locked_message_is_restorable(store_fixture: StoreFixture, queue: Queue) -> None:
    lost, kept = await store_fixture.send(queue, b"1", b"2")
    messages = await store_fixture.claim(queue)
    removals = [Removal(token_of(message), queue.id, queue.name, Outcome.PURGED, DAY, ANY_LOCK) for message in messages]
    assert await store_fixture.store.remove([completion(queue, messages[1])]) == [True]
    assert await store_fixture.store.remove_locked(queue.id, removals) == [True, False]
    assert await restorable(store_fixture, queue) == [lost]
    assert len(await store_fixture.store.restore(queue, [lost, kept])) == 1
    assert await store_fixture.store.remove_locked(queue.id, removals) == [False, False]
    assert await restorable(store_fixture, queue) == []


async def test_messages_of_a_deleted_queue_are_restorable_to_the_queue_of_its_name(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    numbers = await store_fixture.send(queue, b"1", b"2")
    (locked,) = await store_fixture.claim(queue, 1)
    assert await store_fixture.store.queues.delete(queue)
    await store_fixture.store.delete_expired(100)
    again, _ = await store_fixture.store.queues.create(queue.name, QueueSettings())
    assert await restorable(store_fixture, again) == numbers
    assert len(await store_fixture.store.restore(again, numbers)) == 2
    assert [message.queue_id for message in await in_queue(store_fixture, again)] == [again.id] * 2
    assert locked.body in [message.body for message in await in_queue(store_fixture, again)]


async def test_a_restore_to_a_deleted_queue_restores_nothing(store_fixture: StoreFixture, queue: Queue) -> None:
    numbers = await store_fixture.send(queue, b"1")
    await purge(store_fixture, queue, numbers)
    assert await store_fixture.store.queues.delete(queue)
    with pytest.raises(QueueGone):
        await store_fixture.store.restore(queue, numbers)
    assert await restorable(store_fixture, queue) == numbers


async def test_restored_messages_count_as_accepted(store_fixture: StoreFixture, queue: Queue) -> None:
    numbers = await store_fixture.send(queue, b"1", b"2", b"3")
    await purge(store_fixture, queue, numbers)
    await store_fixture.store.restore(queue, numbers[1:])
    assert await counts(store_fixture, queue) == (5, 0, 0)
    assert await store_fixture.store.queues.total(queue.id) == 2
    await assert_nothing_is_missing(store_fixture, queue)


async def test_duplicate_detection_swallows_no_restored_message(store_fixture: StoreFixture, queue: Queue) -> None:
    sent = draft(queue, message_id="one", duplicate_window=MINUTE)
    (receipt,) = await store_fixture.store.send([sent])
    await purge(store_fixture, queue, [receipt.sequence_number])
    assert len(await store_fixture.store.restore(queue, [receipt.sequence_number])) == 1
    assert (await store_fixture.store.send([sent]))[0].duplicate, "the sender's repeat is still recognised"


@pytest.mark.parametrize(("ttl", "is_alive"), [(HOUR, True), (SECOND, False), (None, False)], ids=str)
async def test_a_time_to_live_that_had_not_ended_begins_again(
    store_fixture: StoreFixture, queue: Queue, ttl: Duration | None, is_alive: bool
) -> None:
    (number,) = await store_fixture.send(queue, b"1", ttl=ttl)
    await store_fixture.advance_time(60)
    await purge(store_fixture, queue, [number])
    await store_fixture.advance_time(2 * 3600)
    await store_fixture.store.restore(queue, [number])
    (restored,) = await in_queue(store_fixture, queue)
    expected = restored.enqueued_at + HOUR if is_alive else None
    assert (restored.available_at, restored.expires_at) == (restored.enqueued_at, expected)


async def test_restored_messages_are_deliverable_with_counts_of_zero(store_fixture: StoreFixture, queue: Queue) -> None:
    numbers = await store_fixture.send(queue, b"1", b"2", delay=HOUR)
    rows = [UnlockedRow(number, queue.id, MessageState.SCHEDULED) for number in numbers]
    withdrawals = [Withdrawal(row, queue.name, Outcome.PURGED, DAY) for row in rows]
    assert await store_fixture.store.withdraw(withdrawals) == [True, True]
    assert await store_fixture.claim(queue) == []
    await store_fixture.store.restore(queue, numbers)
    assert [(message.body, message.delivery_count) for message in await store_fixture.claim(queue)] == [
        (b"1", 1),
        (b"2", 1),
    ]


async def test_restorable_messages_are_read_by_queue_time_and_number(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    await purge(store_fixture, other, await store_fixture.send(other, b"other"))
    early = await store_fixture.send(queue, b"1", b"22", priority=7)
    await purge(store_fixture, queue, early)
    await store_fixture.advance_time(60)
    late = await store_fixture.send(queue, b"333")
    await purge(store_fixture, queue, late)
    now, store = await store_fixture.store.now(), store_fixture.store
    assert await restorable(store_fixture, queue) == early + late
    assert await restorable(store_fixture, queue, after=early[0]) == early[1:] + late
    assert [m.sequence_number for m in await store.restorable(queue.name, 0, now, 0, 2)] == early
    assert [m.sequence_number for m in await store.restorable(queue.name, now - MINUTE // 2, now, 0, 9)] == late
    assert [m.sequence_number for m in await store.restorable(queue.name, 0, now - MINUTE // 2, 0, 9)] == early
    first, *_ = await read_restorable(store_fixture, queue)
    assert (first.state, first.body_bytes, first.priority) == (MessageState.AVAILABLE, 1, 7)
    assert await store.read_restorable([*late, *early]) == await read_restorable(store_fixture, queue)
    assert await store.read_restorable([]) == []


async def test_messages_are_restorable_as_long_as_the_archive_has_them(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    numbers = await store_fixture.send(queue, b"1", b"2")
    await purge(store_fixture, queue, numbers, retention=HOUR)
    await store_fixture.execute(f"DELETE FROM archive WHERE sequence_number = {numbers[0]}")
    assert await restorable(store_fixture, queue) == numbers[1:]
    assert len(await store_fixture.store.restore(queue, numbers)) == 1
    await purge(store_fixture, queue, await store_fixture.send(queue, b"3"), retention=HOUR)
    await store_fixture.store.delete_expired(100)
    assert await store_fixture.execute("SELECT COUNT(*) FROM restorable") == [(1,)]
    await store_fixture.advance_time(3601)
    await store_fixture.store.delete_expired(100)
    assert await store_fixture.execute("SELECT COUNT(*) FROM restorable") == [(0,)]


async def test_a_restored_message_takes_its_place_in_its_group(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(group_in_flight=1))
    drafts = [
        draft(queue, body, envelope=Envelope(body.decode(), group_id="g"), is_in_group=True) for body in (b"1", b"2")
    ]
    numbers = [receipt.sequence_number for receipt in await store_fixture.store.send(drafts)]
    await purge(store_fixture, queue, numbers[:1])
    await purge(store_fixture, queue, numbers[1:])
    receipts = await store_fixture.store.restore(queue, numbers)
    assert [receipt.state for receipt in receipts] == [MessageState.AVAILABLE, MessageState.BLOCKED]
    assert [message.body for message in await store_fixture.claim(queue)] == [b"1"]
