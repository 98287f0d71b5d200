"""At most `group_in_flight` messages of a group are available or locked. The others are blocked and follow in order."""

import asyncio
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from app.broker.ports.attempts import Attempt
from app.broker.ports.maintaining import Edit, Redrive, UnlockedRow, Withdrawal
from app.broker.ports.settling import Admitted
from app.broker.ports.store import Store
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Draft, Message, MessageState, Receipt
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import Outcome
from app.domain.work_unit import WorkUnit
from app.store.shared.groups import release_blocked
from app.store.shared.promoting import due_messages
from tests.contract.store_fixture import (
    ServerFixture,
    StoreFixture,
    abandonment,
    bodies,
    claim,
    completion,
    draft,
    expiry,
    numbers,
)


@pytest.fixture
async def fifo(store_fixture: StoreFixture) -> Queue:
    """An empty queue with one message of a group in flight."""
    return await store_fixture.queue(QueueSettings(group_in_flight=1))


def grouped(queue: Queue, group_id: str, body: bytes = b"body", **fields: Any) -> Draft:
    """A draft in a group."""
    unique = draft(queue, body, **fields)
    return replace(unique, envelope=replace(unique.envelope, group_id=group_id), is_in_group=True)


async def send(store_fixture: StoreFixture, queue: Queue, group_id: str, *contents: bytes, **fields: Any) -> list[int]:
    """Send messages of one group. Return their numbers."""
    receipts = await store_fixture.store.send([grouped(queue, group_id, body, **fields) for body in contents])
    return [receipt.sequence_number for receipt in receipts]


async def complete(store_fixture: StoreFixture, queue: Queue, *messages: Message) -> list[bool]:
    """Complete messages of groups."""
    return await store_fixture.store.remove([completion(queue, message, is_in_group=True) for message in messages])


async def counts(store_fixture: StoreFixture, queue: Queue) -> tuple[int, int, int]:
    """Return the numbers of available, locked and blocked messages."""
    counted = (await store_fixture.store.queues.counts([queue.id]))[queue.id]
    return counted.available, counted.locked, counted.blocked


# ---- in order --------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S1.87")
async def test_the_next_message_of_a_group_follows_when_the_first_is_completed(
    store_fixture: StoreFixture, fifo: Queue
) -> None:
    await send(store_fixture, fifo, "a", b"1", b"2")
    await send(store_fixture, fifo, "a", b"3")
    received: list[bytes] = []
    for _ in range(3):
        (message,) = await store_fixture.claim(fifo)
        received.append(message.body)
        assert await store_fixture.claim(fifo) == []
        assert await complete(store_fixture, fifo, message) == [True]
    assert received == [b"1", b"2", b"3"]
    assert await counts(store_fixture, fifo) == (0, 0, 0)


async def test_the_sender_learns_that_a_message_is_blocked(store_fixture: StoreFixture, fifo: Queue) -> None:
    receipts = await store_fixture.store.send([grouped(fifo, "a"), grouped(fifo, "a"), grouped(fifo, "b")])
    assert [receipt.state for receipt in receipts] == [
        MessageState.AVAILABLE,
        MessageState.BLOCKED,
        MessageState.AVAILABLE,
    ]
    assert await counts(store_fixture, fifo) == (2, 0, 1)


async def test_groups_do_not_wait_for_each_other(store_fixture: StoreFixture, fifo: Queue) -> None:
    await send(store_fixture, fifo, "a", b"a1", b"a2")
    await send(store_fixture, fifo, "b", b"b1", b"b2")
    assert bodies(await store_fixture.claim(fifo)) == [b"a1", b"b1"]


async def test_a_group_takes_its_turn_after_others_that_were_available_before(
    store_fixture: StoreFixture, fifo: Queue
) -> None:
    await send(store_fixture, fifo, "large", b"large 1", b"large 2", b"large 3")
    (first,) = await store_fixture.claim(fifo, 1)
    await send(store_fixture, fifo, "small", b"small 1")
    await store_fixture.advance_time(1)
    await complete(store_fixture, fifo, first)
    assert bodies(await store_fixture.claim(fifo)) == [b"small 1", b"large 2"]


async def test_a_group_has_as_many_messages_in_flight_as_its_queue_allows(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(group_in_flight=3))
    await send(store_fixture, queue, "a", *(b"%d" % number for number in range(8)))
    first = await store_fixture.claim(queue)
    assert bodies(first) == [b"0", b"1", b"2"]
    await complete(store_fixture, queue, first[1], first[2])
    second = await store_fixture.claim(queue)
    assert bodies(second) == [b"3", b"4"]
    await complete(store_fixture, queue, first[0], *second)
    assert bodies(await store_fixture.claim(queue)) == [b"5", b"6", b"7"]


async def test_a_message_without_a_group_is_free(store_fixture: StoreFixture, fifo: Queue) -> None:
    await store_fixture.send(fifo, b"1", b"2")
    assert bodies(await store_fixture.claim(fifo)) == [b"1", b"2"]


async def test_two_queues_have_groups_of_their_own(store_fixture: StoreFixture, fifo: Queue) -> None:
    other = await store_fixture.queue(QueueSettings(group_in_flight=1))
    await store_fixture.store.send([grouped(fifo, "a"), grouped(other, "a")])
    assert len(await store_fixture.claim(fifo)) == len(await store_fixture.claim(other)) == 1


# ---- how a message leaves its group ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"state": MessageState.SCHEDULED, "delay": MINUTE},
        {"state": MessageState.DEFERRED, "outcome": Outcome.DEFERRED},
        {"state": MessageState.DEAD_LETTERED, "outcome": Outcome.DEAD_LETTERED},
    ],
    ids=["delayed", "deferred", "dead-lettered"],
)
async def test_a_message_that_waits_for_something_else_leaves_its_group(
    store_fixture: StoreFixture, fifo: Queue, fields: dict[str, Any]
) -> None:
    await send(store_fixture, fifo, "a", b"1", b"2")
    (message,) = await store_fixture.claim(fifo)
    assert await store_fixture.store.move([abandonment(message, **fields, is_in_group=True)]) == [True]
    assert bodies(await store_fixture.claim(fifo)) == [b"2"]


@pytest.mark.parametrize("settle", [abandonment, expiry], ids=["abandoned", "expired"])
async def test_a_message_that_becomes_available_again_keeps_its_place(
    store_fixture: StoreFixture, fifo: Queue, settle: Any
) -> None:
    await send(store_fixture, fifo, "a", b"1", b"2")
    (message,) = await store_fixture.claim(fifo)
    if settle is expiry:
        await store_fixture.advance_time(60)
        assert await store_fixture.store.release([settle(message)]) == [True]
    else:
        assert await store_fixture.store.move([settle(message)]) == [True]
    assert bodies(await store_fixture.claim(fifo)) == [b"1"]


async def test_an_expired_lock_with_a_retry_delay_lets_the_group_go_on(
    store_fixture: StoreFixture, fifo: Queue
) -> None:
    await send(store_fixture, fifo, "a", b"1", b"2")
    (message,) = await store_fixture.claim(fifo)
    await store_fixture.advance_time(60)
    later = expiry(message, state=MessageState.SCHEDULED, delay=MINUTE, is_in_group=True)
    assert await store_fixture.store.release([later]) == [True]
    assert bodies(await store_fixture.claim(fifo)) == [b"2"]


async def test_a_delayed_message_enters_its_group_again_when_it_is_due(
    store_fixture: StoreFixture, fifo: Queue
) -> None:
    await send(store_fixture, fifo, "a", b"1", b"2", b"3")
    (first,) = await store_fixture.claim(fifo)
    delay = abandonment(first, state=MessageState.SCHEDULED, delay=SECOND, is_in_group=True)
    await store_fixture.store.move([delay])
    (second,) = await store_fixture.claim(fifo)
    await store_fixture.advance_time(2)
    promoted = await store_fixture.store.promote(10)
    assert dict(promoted.by_queue) == {}  # It is blocked, so no receiver need be told.
    assert await store_fixture.claim(fifo) == []
    await complete(store_fixture, fifo, second)
    assert bodies(await store_fixture.claim(fifo)) == [b"1"]


async def test_a_scheduled_message_occupies_its_group_only_when_it_is_due(
    store_fixture: StoreFixture, fifo: Queue
) -> None:
    (scheduled,) = await send(store_fixture, fifo, "a", b"scheduled", delay=MINUTE)
    await send(store_fixture, fifo, "a", b"now")
    assert bodies(await store_fixture.claim(fifo)) == [b"now"]
    await store_fixture.advance_time(61)
    await store_fixture.store.promote(10)
    found = await store_fixture.store.read(fifo.id, scheduled)
    assert found is not None
    assert found.state is MessageState.BLOCKED


async def test_a_due_message_of_a_free_group_is_available(store_fixture: StoreFixture, fifo: Queue) -> None:
    (number,) = await send(store_fixture, fifo, "a", b"1", delay=SECOND)
    await store_fixture.advance_time(2)
    assert dict((await store_fixture.store.promote(10)).by_queue) == {fifo.id: [number]}
    assert bodies(await store_fixture.claim(fifo)) == [b"1"]


@pytest.mark.fence("group")
async def test_a_settlement_that_does_not_know_of_the_group_has_no_effect(store_fixture: StoreFixture) -> None:
    fifo = await store_fixture.queue(QueueSettings(group_in_flight=1))
    await send(store_fixture, fifo, "a", b"1", b"2")
    (message,) = await store_fixture.claim(fifo)
    assert await store_fixture.store.remove([completion(fifo, message)]) == [False]
    delay = abandonment(message, state=MessageState.SCHEDULED, delay=MINUTE)
    assert await store_fixture.store.move([delay]) == [False]
    await store_fixture.advance_time(60)
    late = expiry(message, state=MessageState.SCHEDULED, delay=MINUTE)
    assert await store_fixture.store.release([late]) == [False]
    (locked,) = await store_fixture.store.locked_messages([late.token])
    assert locked is not None
    assert locked.is_in_group


# ---- administrators and background loops -----------------------------------------------------------------------------


async def available_and_blocked(store_fixture: StoreFixture, queue: Queue) -> list[int]:
    """Send one available message of a group and two blocked ones."""
    return await send(store_fixture, queue, "a", b"1", b"2", b"3")


def withdrawal(queue: Queue, number: int, state: MessageState) -> Withdrawal:
    """A purge of an unlocked message."""
    return Withdrawal(UnlockedRow(number, queue.id, state), queue.name, Outcome.PURGED, MINUTE)


async def test_a_purged_message_lets_its_group_go_on(store_fixture: StoreFixture, fifo: Queue) -> None:
    first, second, _ = await available_and_blocked(store_fixture, fifo)
    withdrawals = [withdrawal(fifo, second, MessageState.BLOCKED), withdrawal(fifo, first, MessageState.AVAILABLE)]
    assert await store_fixture.store.withdraw(withdrawals) == [True, True]
    assert await counts(store_fixture, fifo) == (1, 0, 0)
    assert bodies(await store_fixture.claim(fifo)) == [b"3"]


async def test_a_purged_locked_message_lets_its_group_go_on(store_fixture: StoreFixture, fifo: Queue) -> None:
    await available_and_blocked(store_fixture, fifo)
    (message,) = await store_fixture.claim(fifo)
    removal = completion(fifo, message, is_in_group=True)
    assert await store_fixture.store.remove_locked(fifo.id, [removal]) == [True]
    assert bodies(await store_fixture.claim(fifo)) == [b"2"]


async def test_a_cancelled_message_lets_its_group_go_on(store_fixture: StoreFixture, fifo: Queue) -> None:
    for number in (await available_and_blocked(store_fixture, fifo))[:2]:
        message = await store_fixture.store.read(fifo.id, number)
        assert message is not None
        assert await store_fixture.store.cancel(message, fifo)
    assert bodies(await store_fixture.claim(fifo)) == [b"3"]


@pytest.mark.parametrize("store_fixture", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize(
    "takes_away",
    [
        "DELETE FROM message WHERE sequence_number = {}",
        "UPDATE message SET state = 3, in_group = NULL WHERE sequence_number = {}",
    ],
    ids=["cancelled", "rescheduled"],
)
async def test_a_message_that_is_taken_away_meanwhile_is_passed_over(
    store_fixture: ServerFixture, fifo: Queue, takes_away: str
) -> None:
    _, second, _ = await available_and_blocked(store_fixture, fifo)
    (message,) = await store_fixture.claim(fifo)
    async with store_fixture.open_transaction(takes_away.format(second), commits=True):
        completing = asyncio.ensure_future(complete(store_fixture, fifo, message))
        await store_fixture.wait_until_blocked()
    assert await completing == [True]
    assert bodies(await store_fixture.claim(fifo)) == [b"3"]
    await store_fixture.store.queues.delete(fifo)  # The statement above has not counted the message out.


async def test_a_cancelled_blocked_message_frees_no_place(store_fixture: StoreFixture, fifo: Queue) -> None:
    _, second, _ = await available_and_blocked(store_fixture, fifo)
    message = await store_fixture.store.read(fifo.id, second)
    assert message is not None
    assert await store_fixture.store.cancel(message, fifo)
    assert await counts(store_fixture, fifo) == (1, 0, 1)
    (first,) = await store_fixture.claim(fifo)
    await complete(store_fixture, fifo, first)
    assert bodies(await store_fixture.claim(fifo)) == [b"3"]


async def test_blocked_messages_expire_in_line(store_fixture: StoreFixture, fifo: Queue) -> None:
    await send(store_fixture, fifo, "a", b"1")
    await send(store_fixture, fifo, "a", b"2", ttl=SECOND)
    await send(store_fixture, fifo, "a", b"3")
    await store_fixture.advance_time(2)
    (row,) = await store_fixture.store.expired_messages(10)
    assert row.state is MessageState.BLOCKED
    assert await store_fixture.store.expire([expiration(fifo, row)]) == [True]
    (first,) = await store_fixture.claim(fifo)
    await complete(store_fixture, fifo, first)
    assert bodies(await store_fixture.claim(fifo)) == [b"3"]


def expiration(queue: Queue, row: UnlockedRow) -> Withdrawal:
    """The end of a message past its time to live."""
    return Withdrawal(row, queue.name, Outcome.EXPIRED, MINUTE)


@pytest.mark.parametrize("is_dead_lettered", [True, False], ids=["dead-lettered", "archived"])
async def test_an_available_message_past_its_life_lets_its_group_go_on(
    store_fixture: StoreFixture, fifo: Queue, is_dead_lettered: bool
) -> None:
    await send(store_fixture, fifo, "a", b"1", ttl=SECOND)
    await send(store_fixture, fifo, "a", b"2")
    await store_fixture.advance_time(2)
    (row,) = await store_fixture.store.expired_messages(10)
    if is_dead_lettered:
        assert await store_fixture.store.dead_letter([row], "ttl_expired") == [True]
    else:
        assert await store_fixture.store.expire([expiration(fifo, row)]) == [True]
    assert bodies(await store_fixture.claim(fifo)) == [b"2"]


@pytest.mark.fence("time", "level")
async def test_a_pass_that_leaves_out_a_group_finds_what_else_is_due_or_has_expired(
    store_fixture: StoreFixture,
) -> None:
    queue, other, newer = [await store_fixture.queue(QueueSettings(group_in_flight=9)) for _ in range(3)]
    for group in "ab":
        for lasting in ({"delay": MINUTE}, {"delay": HOUR}, {"ttl": MINUTE}, {"ttl": HOUR}):
            await send(store_fixture, queue, group, group.encode(), **lasting)
    for same_name in (other, newer):
        await send(store_fixture, same_name, "a", b"a", delay=MINUTE)
        await send(store_fixture, same_name, "a", b"a", ttl=MINUTE)
    await store_fixture.need_newer_server(newer)
    await store_fixture.advance_time(61)
    store: Any = store_fixture.store
    due = await due_messages(store._database, 100, [(queue.id, "a")])
    assert sorted((queue_id, group_id) for _, queue_id, group_id in due) == [(queue.id, "b"), (other.id, "a")]
    assert len(await due_messages(store._database, 1, [(queue.id, "a")])) == 1
    store._held_groups.add((queue.id, "a"))
    expired = await store.expired_messages(100)
    assert sorted(row.queue_id for row in expired) == [queue.id, other.id]
    assert len(await store.expired_messages(100)) == 3, "the next pass finds the group again"


@pytest.mark.fence("time", "level")
async def test_a_pass_that_leaves_out_a_group_finds_what_other_locks_have_ended(store_fixture: StoreFixture) -> None:
    queue, other, newer = [await store_fixture.queue(QueueSettings(group_in_flight=9)) for _ in range(3)]
    for one, group in ((queue, "a"), (queue, "b"), (other, "a"), (newer, "a")):
        await send(store_fixture, one, group, group.encode())
        await store_fixture.claim(one, lock_duration=MINUTE)
    await send(store_fixture, queue, "b", b"later")
    await store_fixture.claim(queue, lock_duration=HOUR)
    await store_fixture.need_newer_server(newer)
    await store_fixture.advance_time(61)
    store: Any = store_fixture.store
    store._groups_of_locks.add((queue.id, "a"))
    assert [lock.queue_id for lock in await store.expired_locks(100)] == [queue.id, other.id]
    assert len(await store.expired_locks(100)) == 3, "the next pass finds the group again"


async def test_an_expired_message_of_a_group_is_not_available(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(group_in_flight=9))
    await send(store_fixture, queue, "a", b"mortal", ttl=MINUTE)
    await send(store_fixture, queue, "a", b"immortal")
    await store_fixture.advance_time(61)
    numbers = await store_fixture.store.available_in_group(queue.id, "a", 1)
    assert bodies(await store_fixture.store.claim_by_number(claim(queue), numbers)) == [b"immortal"]


async def test_redriven_messages_enter_their_group_in_order(store_fixture: StoreFixture, fifo: Queue) -> None:
    await send(store_fixture, fifo, "a", b"1", b"2")
    for _ in range(2):
        (message,) = await store_fixture.claim(fifo)
        dead = abandonment(message, state=MessageState.DEAD_LETTERED, is_in_group=True)
        await store_fixture.store.move([dead])
    rows = await store_fixture.store.browse_metadata(fifo.id, [MessageState.DEAD_LETTERED], 0, 10)
    redrives = [Redrive(UnlockedRow(row.sequence_number, fifo.id, MessageState.DEAD_LETTERED), fifo.id) for row in rows]
    assert await store_fixture.store.redrive(redrives) == [True, True]
    assert await counts(store_fixture, fifo) == (1, 0, 1)
    (first,) = await store_fixture.claim(fifo)
    await complete(store_fixture, fifo, first)
    assert bodies([first, *await store_fixture.claim(fifo)]) == [b"1", b"2"]


async def test_an_edited_due_time_moves_a_message_out_of_its_group_and_back(
    store_fixture: StoreFixture, fifo: Queue
) -> None:
    first, second, _ = await available_and_blocked(store_fixture, fifo)

    async def edit(number: int, **fields: Any) -> Message:
        message = await store_fixture.store.read(fifo.id, number)
        assert message is not None
        edited = await store_fixture.store.edit(Edit(message, **fields))
        assert edited is not None
        return edited

    assert (await edit(first, delay=MINUTE)).state is MessageState.SCHEDULED
    assert (await edit(second, priority=9)).state is MessageState.AVAILABLE
    assert (await edit(first, delay=0)).state is MessageState.BLOCKED
    assert (await edit(first, delay=0)).state is MessageState.BLOCKED
    assert (await edit(second, delay=0)).state is MessageState.AVAILABLE
    assert await counts(store_fixture, fifo) == (1, 0, 2)
    assert (await edit(first, delay=MINUTE)).state is MessageState.SCHEDULED
    (message,) = await store_fixture.claim(fifo)
    await complete(store_fixture, fifo, message)
    assert bodies([message, *await store_fixture.claim(fifo)]) == [b"2", b"3"]


# ---- changes of the setting ------------------------------------------------------------------------------------------


async def change(store_fixture: StoreFixture, queue: Queue, group_in_flight: int | None, limit: int = 2) -> Queue:
    """Change the setting of a queue, and run what a background loop does after it."""
    changed = await store_fixture.store.queues.change(queue, QueueSettings(group_in_flight=group_in_flight))
    assert changed is not None
    while not await store_fixture.store.admit_after_changes(limit):
        pass
    # Else every later pass would look at the queue again.
    assert await store_fixture.execute(f"SELECT admit_after FROM queue WHERE id = {queue.id}") == [(None,)]
    return changed


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_higher_limit_admits_blocked_messages_of_every_group(
    store_fixture: StoreFixture, fifo: Queue, limit: int
) -> None:
    for group in "abcde":
        await send(store_fixture, fifo, group, b"1", b"2", b"3")
    await change(store_fixture, fifo, 2, limit)
    assert await counts(store_fixture, fifo) == (10, 0, 5)


@pytest.mark.parametrize("group_in_flight", [2, None])
async def test_a_pass_after_a_change_lets_a_limited_number_follow(
    store_fixture: StoreFixture, fifo: Queue, group_in_flight: int | None
) -> None:
    for group in "abc":
        await send(store_fixture, fifo, group, b"1", b"2")
    assert await store_fixture.store.queues.change(fifo, QueueSettings(group_in_flight=group_in_flight))
    for blocked in (2, 1, 0):
        await store_fixture.store.admit_after_changes(1)
        assert await counts(store_fixture, fifo) == (6 - blocked, 0, blocked)


async def test_a_lower_limit_holds_for_messages_that_follow(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(group_in_flight=3))
    await send(store_fixture, queue, "a", b"1", b"2", b"3", b"4")
    await change(store_fixture, queue, 1)
    first, second, third = await store_fixture.claim(queue)
    await complete(store_fixture, queue, first, second)
    assert await store_fixture.claim(queue) == []
    await complete(store_fixture, queue, third)
    assert bodies(await store_fixture.claim(queue)) == [b"4"]


async def test_without_a_limit_nothing_is_blocked(store_fixture: StoreFixture, fifo: Queue) -> None:
    await send(store_fixture, fifo, "a", b"1", b"2", b"3")
    await change(store_fixture, fifo, None)
    assert bodies(await store_fixture.claim(fifo)) == [b"1", b"2", b"3"]


async def test_the_end_of_a_limit_concerns_blocked_messages_of_its_queue_alone(
    store_fixture: StoreFixture, fifo: Queue
) -> None:
    other = await store_fixture.queue(fifo.settings)
    for each in (fifo, other):
        await send(store_fixture, each, "a", b"1", b"2")
    (locked,) = await store_fixture.claim(fifo, lock_duration=HOUR)
    await store_fixture.advance_time(60)
    await change(store_fixture, fifo, None)
    (released,) = await store_fixture.store.browse(fifo.id, [MessageState.AVAILABLE], 0, 10)
    assert store_fixture.is_close(released.available_at, await store_fixture.store.now())
    assert (await counts(store_fixture, fifo), await counts(store_fixture, other)) == ((1, 1, 0), (1, 0, 1))
    assert await complete(store_fixture, fifo, locked) == [True]


async def test_a_due_message_of_a_queue_without_a_limit_has_no_place(store_fixture: StoreFixture, queue: Queue) -> None:
    draft_of_group = replace(grouped(queue, "a", delay=SECOND), is_in_group=False)
    await store_fixture.store.send([draft_of_group])
    await store_fixture.advance_time(2)
    await store_fixture.store.promote(10)
    assert await store_fixture.execute("SELECT state, in_group FROM message") == [(1, None)]


async def test_without_a_limit_no_message_of_a_large_group_is_blocked(store_fixture: StoreFixture, fifo: Queue) -> None:
    await store_fixture.store.send([grouped(fifo, "a") for _ in range(1002)])
    changed = await store_fixture.store.queues.change(fifo, QueueSettings())
    assert changed is not None
    while not await store_fixture.store.admit_after_changes(600):
        pass
    assert await counts(store_fixture, fifo) == (1002, 0, 0)


async def test_a_process_that_pauses_releases_no_message_that_a_new_limit_blocks(
    store_fixture: StoreFixture, fifo: Queue
) -> None:
    unlimited = await store_fixture.store.queues.change(fifo, QueueSettings())
    assert unlimited is not None
    late_pass = partial(release_blocked, queue_id=fifo.id, after="", version=unlimited.version, limit=10)
    await change(store_fixture, unlimited, 1)
    await send(store_fixture, fifo, "a", b"1", b"2")
    store: Any = store_fixture.store
    assert await store._database.transaction(late_pass) == ([], True)
    assert await counts(store_fixture, fifo) == (1, 0, 1)


async def test_a_draft_of_a_group_is_free_after_the_limit_was_removed(store_fixture: StoreFixture, fifo: Queue) -> None:
    await send(store_fixture, fifo, "a", b"1")
    await change(store_fixture, fifo, None)
    await send(store_fixture, fifo, "a", b"2")  # from a server that has not read the change yet
    assert bodies(await store_fixture.claim(fifo)) == [b"1", b"2"]


async def test_messages_from_before_the_limit_are_delivered_without_it(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue()
    ungrouped = replace(grouped(queue, "a", b"old"), is_in_group=False)
    await store_fixture.store.send([ungrouped, replace(ungrouped, body=b"old too")])
    await change(store_fixture, queue, 1)
    await send(store_fixture, queue, "a", b"new", b"blocked")
    assert bodies(await store_fixture.claim(queue)) == [b"old", b"old too", b"new"]


# ---- what senders and receivers learn --------------------------------------------------------------------------------


async def test_the_listener_is_told_of_messages_that_follow(store_fixture: StoreFixture, fifo: Queue) -> None:
    told: list[Admitted] = []
    store_fixture.store.on_admitted = told.extend
    _, second, third = await send(store_fixture, fifo, "a", b"1", b"2", b"3")
    (message,) = await store_fixture.claim(fifo)
    assert told == []  # The receipt has said it.
    await complete(store_fixture, fifo, message)
    assert [admitted.sequence_number for admitted in told] == [second]
    found = await store_fixture.store.read(fifo.id, second)
    assert found is not None
    await store_fixture.store.cancel(found, fifo)
    assert [admitted.sequence_number for admitted in told] == [second, third]


async def test_the_listener_is_told_of_messages_that_follow_an_edit(store_fixture: StoreFixture, fifo: Queue) -> None:
    told: list[Admitted] = []
    first, second = await send(store_fixture, fifo, "a", b"1", b"2")
    store_fixture.store.on_admitted = told.extend
    found = await store_fixture.store.read(fifo.id, first)
    assert found is not None
    await store_fixture.store.edit(Edit(found, delay=MINUTE))
    assert [admitted.sequence_number for admitted in told] == [second]


async def test_a_repeated_attempt_tells_the_same_states(store_fixture: StoreFixture, fifo: Queue) -> None:
    attempt = Attempt(b"k" * 32, b"f" * 32, MINUTE)
    drafts = [grouped(fifo, "a"), grouped(fifo, "a")]
    first = await store_fixture.store.send_or_replay(drafts, attempt)
    assert [receipt.state for receipt in first.result] == [MessageState.AVAILABLE, MessageState.BLOCKED]
    assert (await store_fixture.store.send_or_replay(drafts, attempt)).result == first.result


async def test_a_duplicate_takes_no_place(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(group_in_flight=2, duplicate_detection_window=MINUTE))
    window = {"duplicate_window": MINUTE}
    await store_fixture.store.send([grouped(queue, "a", b"1", message_id="one", **window)])
    receipts = await store_fixture.store.send(
        [
            grouped(queue, "a", b"1", message_id="one", **window),
            grouped(queue, "a", b"2", message_id="two", **window),
            grouped(queue, "a", b"3", message_id="three", **window),
        ]
    )
    assert [receipt.duplicate for receipt in receipts] == [True, False, False]
    assert bodies(await store_fixture.claim(queue)) == [b"1", b"2"]


@pytest.mark.parametrize("is_unit", [False, True], ids=["send", "work unit"])
async def test_a_duplicate_gets_the_state_that_the_first_sender_got(store_fixture: StoreFixture, is_unit: bool) -> None:
    settings = QueueSettings(group_in_flight=1, duplicate_detection_window=MINUTE)
    queue = await store_fixture.queue(settings)
    drafts = [grouped(queue, group, message_id=f"{group} 1", duplicate_window=MINUTE) for group in "ab"]
    drafts.append(grouped(queue, "a", message_id="a 2", duplicate_window=MINUTE))

    async def send_all() -> list[Receipt]:
        if not is_unit:
            return await store_fixture.store.send(drafts)
        return list((await store_fixture.store.execute(WorkUnit([], drafts), None)).result.receipts)

    first = await send_all()
    assert [receipt.state for receipt in first] == [MessageState.AVAILABLE] * 2 + [MessageState.BLOCKED]
    assert await send_all() == [replace(receipt, duplicate=True) for receipt in first]


async def test_the_listener_is_told_of_a_message_that_the_same_batch_repeats(store_fixture: StoreFixture) -> None:
    settings = QueueSettings(group_in_flight=1, duplicate_detection_window=MINUTE)
    queue = await store_fixture.queue(settings)
    one, two, three = (grouped(queue, "a", message_id=name, duplicate_window=MINUTE) for name in ("1", "2", "3"))
    _, second = await store_fixture.store.send([one, two])
    await store_fixture.store.queues.change(queue, QueueSettings(group_in_flight=2, duplicate_detection_window=MINUTE))
    told: list[Admitted] = []
    store_fixture.store.on_admitted = told.extend
    await store_fixture.store.send([two, three])
    assert [admitted.sequence_number for admitted in told] == [second.sequence_number]


async def test_blocked_messages_can_be_browsed(store_fixture: StoreFixture, fifo: Queue) -> None:
    _, second, third = await available_and_blocked(store_fixture, fifo)
    found = await store_fixture.store.browse(fifo.id, [MessageState.BLOCKED], 0, 10)
    assert numbers(found) == [second, third]
    assert numbers(await store_fixture.store.browse(fifo.id, list(MessageState), 0, 10))[1:] == [second, third]


# ---- at the same time ------------------------------------------------------------------------------------------------


async def test_concurrent_senders_and_receivers_never_exceed_the_limit(
    store_fixture: StoreFixture, stores: list[Store]
) -> None:
    queue = await store_fixture.queue(QueueSettings(group_in_flight=2))
    total, in_flight, completed = 120, dict.fromkeys("abc", 0), list[bytes]()

    async def produce(store: Store, start: int) -> None:
        for number in range(start, total, 4):
            await store.send([grouped(queue, "abc"[number % 3], b"%d" % number)])

    async def consume(store: Store) -> None:
        while len(completed) < total:
            messages = await store.claim(claim(queue, 3))
            for message in messages:
                group = message.envelope.group_id or ""
                in_flight[group] += 1
                assert in_flight[group] <= 2
            await asyncio.sleep(0)
            for message in messages:
                in_flight[message.envelope.group_id or ""] -= 1
                completed.append(message.body)
                done = completion(queue, message, is_in_group=True)
                dead = abandonment(message, state=MessageState.DEAD_LETTERED, is_in_group=True)
                settle = partial(store.remove, [done]) if len(completed) % 7 else partial(store.move, [dead])
                # A claim of another receiver may hold the row for a moment.
                while await settle() != [True]:  # noqa: ASYNC110 (the end of the other statement is no event here)
                    await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(
            *(produce(stores[start % 2], start) for start in range(4)), *(consume(store) for store in stores * 3)
        )
    assert sorted(completed) == sorted(b"%d" % number for number in range(total))
    assert await counts(store_fixture, queue) == (0, 0, 0)
