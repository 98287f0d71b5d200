"""Browsing changes nothing and shows every message. Counts are exact."""

import pytest

from app.domain.instant import HOUR, SECOND
from app.domain.message import Envelope, MessageHeaders, MessageState
from app.domain.queue import Queue, QueueCounts, QueueSettings
from tests.bounds import bounded
from tests.contract.store_fixture import StoreFixture, abandonment, claim, completion, numbers


@pytest.fixture
async def queue(store_fixture: StoreFixture) -> Queue:
    """An empty queue with groups, because only there a message can be blocked."""
    return await store_fixture.queue(QueueSettings(group_in_flight=1))


async def message_in_each_state(store_fixture: StoreFixture, queue: Queue) -> dict[MessageState, int]:
    """Create a message in every state. Return their numbers by state."""
    states = [MessageState.DEFERRED, MessageState.DEAD_LETTERED, MessageState.LOCKED, MessageState.BLOCKED]
    sent = await store_fixture.send(queue, *[b"body"] * 2)
    first, second = (Envelope(message_id, group_id="group") for message_id in ("first", "second"))
    sent += await store_fixture.send(queue, b"body", envelope=first, is_in_group=True)
    sent += await store_fixture.send(queue, b"body", envelope=second, is_in_group=True)
    moved = await store_fixture.store.claim_by_number(claim(queue), sent[:2])
    await store_fixture.store.move(
        [abandonment(message, state=state) for message, state in zip(moved, states, strict=False)]
    )
    await store_fixture.store.claim_by_number(claim(queue), [sent[2]])
    (scheduled,) = await store_fixture.send(queue, b"body", delay=HOUR)
    (available,) = await store_fixture.send(queue, b"body")
    by_state = dict(zip(states, sent, strict=True))
    return by_state | {MessageState.SCHEDULED: scheduled, MessageState.AVAILABLE: available}


async def test_every_state_is_shown_by_number(store_fixture: StoreFixture, queue: Queue) -> None:
    by_state = await message_in_each_state(store_fixture, queue)
    shown = await store_fixture.store.browse(queue.id, list(MessageState), 0, 100)
    assert numbers(shown) == sorted(by_state.values())
    assert {message.state: message.sequence_number for message in shown} == by_state


async def test_metadata_has_every_field_except_the_body(store_fixture: StoreFixture, queue: Queue) -> None:
    await message_in_each_state(store_fixture, queue)
    (long,) = await store_fixture.send(
        queue, b"\x00\xff" * 50_000, envelope=Envelope("an-id", MessageHeaders("type"), properties=b'{"a":1}')
    )
    shown = await store_fixture.store.browse(queue.id, list(MessageState), 0, 100)
    metadata = await store_fixture.store.browse_metadata(queue.id, list(MessageState), 0, 100)
    assert [(row.sequence_number, row.envelope, row.body_bytes, row.state, row.lock_token) for row in metadata] == [
        (message.sequence_number, message.envelope, len(message.body), message.state, message.lock_token)
        for message in shown
    ]
    assert metadata[-1].body_bytes == 100_000
    half = await store_fixture.store.browse_metadata(
        queue.id, [MessageState.AVAILABLE], metadata[-2].sequence_number, 1
    )
    assert [message.sequence_number for message in half] == [long]


async def test_the_newest_messages_are_read_in_every_state(store_fixture: StoreFixture, queue: Queue) -> None:
    store = store_fixture.store
    await message_in_each_state(store_fixture, queue)
    await store_fixture.send(await store_fixture.queue(), b"body")
    newest = [*reversed(await store.browse_metadata(queue.id, list(MessageState), 0, 100))]
    assert len(newest) == len(MessageState)
    assert await store.newest_metadata(queue.id, 100) == newest
    assert await store.newest_metadata(queue.id, 2) == newest[:2]


async def test_messages_still_in_the_queue_are_read_by_number(store_fixture: StoreFixture, queue: Queue) -> None:
    by_state = await message_in_each_state(store_fixture, queue)
    (elsewhere,) = await store_fixture.send(await store_fixture.queue(), b"body")
    requested = [*sorted(by_state.values(), reverse=True), elsewhere, 10**15]
    assert numbers(await store_fixture.store.read_many(queue.id, requested)) == sorted(by_state.values())
    assert await store_fixture.store.read_many(queue.id, []) == []


async def test_metadata_of_messages_still_in_the_queue_is_read_by_number(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    by_state = await message_in_each_state(store_fixture, queue)
    (elsewhere,) = await store_fixture.send(await store_fixture.queue(), b"body")
    requested = [*sorted(by_state.values(), reverse=True), elsewhere, 10**15]
    found = await store_fixture.store.read_metadata(queue.id, requested)
    assert found == await store_fixture.store.browse_metadata(queue.id, list(MessageState), 0, 100)
    assert {message.state: message.sequence_number for message in found} == by_state
    assert await store_fixture.store.read_metadata(queue.id, []) == []


async def test_the_last_sequence_number_belongs_to_the_last_message_sent(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    assert await store_fixture.store.last_sequence_number() == 0
    first, last = await store_fixture.send(queue, b"1", b"2")
    assert await store_fixture.store.last_sequence_number() == last > first


@pytest.mark.parametrize("state", list(MessageState))
async def test_only_requested_states_are_shown(store_fixture: StoreFixture, queue: Queue, state: MessageState) -> None:
    by_state = await message_in_each_state(store_fixture, queue)
    assert numbers(await store_fixture.store.browse(queue.id, [state], 0, 100)) == [by_state[state]]
    others = [other for other in MessageState if other is not state]
    shown = await store_fixture.store.browse(queue.id, others, 0, 100)
    assert numbers(shown) == sorted(by_state[other] for other in others)


async def test_pages_have_no_gaps_and_no_repeats(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    sent: list[int] = []
    for index in range(12):
        sent += await store_fixture.send(queue, b"body", delay=HOUR if index % 3 else None, priority=index % 10)
        await store_fixture.send(other, b"body")
    listed: list[int] = []
    for _ in bounded("a page is empty", len(sent)):
        page = await store_fixture.store.browse(queue.id, list(MessageState), listed[-1] if listed else 0, 5)
        assert len(page) <= 5
        if not page:
            break
        listed += numbers(page)
    assert listed == sent


async def test_browsing_changes_nothing(store_fixture: StoreFixture, queue: Queue) -> None:
    await message_in_each_state(store_fixture, queue)
    before = await store_fixture.execute("SELECT * FROM message ORDER BY sequence_number")
    shown = await store_fixture.store.browse(queue.id, list(MessageState), 0, 100)
    for message in shown:
        read = await store_fixture.store.read(queue.id, message.sequence_number)
        assert read is not None
        assert (read.envelope, read.state) == (message.envelope, message.state)
        assert store_fixture.is_close(read.read_at, await store_fixture.store.now())
    assert await store_fixture.execute("SELECT * FROM message ORDER BY sequence_number") == before


async def test_a_missing_message_is_not_shown(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.remove([completion(queue, message)])
    assert await store_fixture.store.read(queue.id, message.sequence_number) is None
    assert await store_fixture.store.read(queue.id, 10**15) is None
    assert await store_fixture.store.browse(queue.id, list(MessageState), 0, 10) == []


async def test_counts_are_exact_and_per_queue(store_fixture: StoreFixture, queue: Queue) -> None:
    other, empty = await store_fixture.queue(), await store_fixture.queue()
    await message_in_each_state(store_fixture, queue)
    await store_fixture.send(queue, b"body", b"body", priority=9)
    await store_fixture.send(other, b"body", delay=HOUR)
    counts = await store_fixture.store.queues.counts([queue.id, other.id, empty.id])
    assert set(counts) == {queue.id, other.id, empty.id}
    mine = counts[queue.id]
    states = (mine.available, mine.scheduled, mine.locked, mine.deferred, mine.dead_lettered, mine.uncommitted)
    assert states == (3, 1, 1, 1, 1, 0)
    assert mine.blocked == 1
    assert counts[other.id] == QueueCounts(scheduled=1)
    assert counts[empty.id] == QueueCounts()
    assert await store_fixture.store.queues.counts([]) == {}
    assert [await store_fixture.store.queues.total(counted.id) for counted in (queue, other, empty)] == [8, 1, 0]


async def test_the_waiting_time_of_the_oldest_available_message_is_reported(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await store_fixture.send(queue, b"oldest", priority=0)
    await store_fixture.advance_time(20)
    await store_fixture.send(queue, b"newer", priority=9)
    await store_fixture.advance_time(10)
    waited = (await store_fixture.store.queues.counts([queue.id]))[queue.id].oldest_available
    assert store_fixture.is_close(waited, 30 * SECOND)
    await store_fixture.claim(queue)
    assert (await store_fixture.store.queues.counts([queue.id]))[queue.id].oldest_available is None


async def test_a_message_stored_before_the_clock_was_set_back_has_waited_zero(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await store_fixture.send(queue, b"body")
    await store_fixture.advance_time(-60)
    assert (await store_fixture.store.queues.counts([queue.id]))[queue.id].oldest_available == 0
