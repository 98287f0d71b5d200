"""What background loops and administrators do to unlocked messages."""

import asyncio

import pytest

from app.broker.administration.expire import expire_messages
from app.broker.ports.maintaining import Edit, Promoted, Redrive, UnlockedRow, Withdrawal
from app.broker.ports.store import Store
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.message import BodyKind, Draft, Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import Outcome
from tests.brokers import build_broker
from tests.contract.store_fixture import StoreFixture, abandonment, bodies, claim, completion, draft, numbers, token


async def set_aside(store_fixture: StoreFixture, queue: Queue, state: MessageState, **fields: object) -> UnlockedRow:
    """A message that was received and moved into this state."""
    message = await store_fixture.locked(queue)
    await store_fixture.store.move([abandonment(message, state=state, **fields)])
    return UnlockedRow(message.sequence_number, queue.id, state)


# ---- the schedule ----------------------------------------------------------------------------------------------------


def count_by_queue(promoted: Promoted) -> dict[int, int]:
    return {queue_id: len(numbers) for queue_id, numbers in promoted.by_queue.items()}


@pytest.mark.fence("time")
@pytest.mark.behaviour("S2.9")
async def test_due_messages_become_available_and_the_next_due_time_is_returned(store_fixture: StoreFixture) -> None:
    one, two = await store_fixture.queue(), await store_fixture.queue()
    await store_fixture.store.send([draft(one, b"a", delay=10 * SECOND), draft(one, b"b", delay=20 * SECOND)])
    await store_fixture.store.send([draft(two, b"c", delay=15 * SECOND), draft(two, b"d", delay=MINUTE)])
    first = await store_fixture.store.promote(10)
    assert dict(first.by_queue) == {}
    assert store_fixture.is_close(first.next_due_in, 10 * SECOND)
    await store_fixture.advance_time(30)
    second = await store_fixture.store.promote(10)
    assert count_by_queue(second) == {one.id: 2, two.id: 1}
    assert store_fixture.is_close(second.next_due_in, 30 * SECOND)
    assert bodies(await store_fixture.claim(one)) == [b"a", b"b"]
    assert bodies(await store_fixture.claim(two)) == [b"c"]


async def test_due_messages_are_promoted_in_batches_earliest_first(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.store.send([draft(queue, b"%d" % index, delay=(5 - index) * SECOND) for index in range(5)])
    await store_fixture.advance_time(10)
    batch = await store_fixture.store.promote(2)
    assert (count_by_queue(batch), batch.next_due_in) == ({queue.id: 2}, 0)
    assert bodies(await store_fixture.claim(queue)) == [b"4", b"3"]


async def test_without_scheduled_messages_no_due_time_is_returned(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, b"available")
    promoted = await store_fixture.store.promote(10)
    assert (dict(promoted.by_queue), promoted.next_due_in) == ({}, None)


async def test_concurrent_promotions_promote_a_message_once(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    await store_fixture.store.send([draft(queue, delay=SECOND) for _ in range(30)])
    await store_fixture.advance_time(2)
    promotions = await asyncio.gather(*(stores[index % 2].promote(20) for index in range(6)))
    assert sum(len(promotion.by_queue.get(queue.id, [])) for promotion in promotions) == 30
    assert len(await store_fixture.claim(queue)) == 30


# ---- time to live ----------------------------------------------------------------------------------------------------


@pytest.mark.fence("time")
async def test_unlocked_messages_past_their_time_to_live_are_expired(store_fixture: StoreFixture, queue: Queue) -> None:
    short = {"ttl": MINUTE}
    sent = await store_fixture.send(queue, b"available", b"locked", b"deferred", b"dead", **short)
    _, locked, deferred, dead = sent
    await store_fixture.send(queue, b"long", ttl=HOUR)
    await store_fixture.send(queue, b"for ever")
    (scheduled,) = await store_fixture.send(queue, b"scheduled", ttl=2 * SECOND, delay=58 * SECOND)
    taken = await store_fixture.store.claim_by_number(claim(queue, lock_duration=HOUR), [locked, deferred, dead])
    states = [MessageState.DEFERRED, MessageState.DEAD_LETTERED]
    await store_fixture.store.move([abandonment(m, state=state) for m, state in zip(taken[1:], states, strict=True)])
    assert await store_fixture.store.expired_messages(10) == []
    await store_fixture.advance_time(61)
    found = await store_fixture.store.expired_messages(10)
    assert set(found) == {
        UnlockedRow(sent[0], queue.id, MessageState.AVAILABLE),
        UnlockedRow(deferred, queue.id, MessageState.DEFERRED),
        UnlockedRow(scheduled, queue.id, MessageState.SCHEDULED),
    }
    assert len(await store_fixture.store.expired_messages(2)) == 2


@pytest.mark.parametrize("outcome", [Outcome.EXPIRED, Outcome.PURGED, Outcome.CANCELLED])
async def test_a_withdrawn_message_is_in_the_archive_without_a_token(
    store_fixture: StoreFixture, queue: Queue, outcome: Outcome
) -> None:
    row = await set_aside(store_fixture, queue, MessageState.DEFERRED)
    assert await store_fixture.store.withdraw([Withdrawal(row, queue.name, outcome, DAY)]) == [True]
    assert await store_fixture.store.read(queue.id, row.sequence_number) is None
    columns = ("queue", "outcome", "lock_token", "body", "settled_at", "remove_at")
    ((name, ended, secret, body, settled_at, remove_at),) = await store_fixture.archived(row.sequence_number, *columns)
    assert (name, ended, secret, bytes(body)) == (queue.name, outcome.value, None, b"body")
    assert remove_at == settled_at + DAY


async def test_messages_withdrawn_together_have_separate_outcomes(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue(QueueSettings(archive_retention=0))
    mine = [
        await set_aside(store_fixture, queue, state) for state in (MessageState.DEFERRED, MessageState.DEAD_LETTERED)
    ]
    (theirs,) = await store_fixture.send(other, b"body")
    missing = UnlockedRow(10**15, queue.id, MessageState.AVAILABLE)
    withdrawals = [
        Withdrawal(mine[0], queue.name, Outcome.PURGED, DAY),
        Withdrawal(missing, queue.name, Outcome.PURGED, DAY),
        Withdrawal(UnlockedRow(theirs, other.id, MessageState.AVAILABLE), other.name, Outcome.EXPIRED, 0),
        Withdrawal(mine[1], queue.name, Outcome.CANCELLED, DAY),
    ]
    assert await store_fixture.store.withdraw(withdrawals) == [True, False, True, True]
    archived = await store_fixture.execute("SELECT sequence_number, outcome FROM archive ORDER BY sequence_number")
    assert archived == [(mine[0].sequence_number, "purged"), (mine[1].sequence_number, "cancelled")]
    assert await store_fixture.execute("SELECT sequence_number FROM message") == []
    assert await store_fixture.store.withdraw([]) == []


async def test_a_dead_lettered_message_has_its_reason(store_fixture: StoreFixture, queue: Queue) -> None:
    (number,) = await store_fixture.send(queue, b"body", ttl=SECOND)
    row = UnlockedRow(number, queue.id, MessageState.AVAILABLE)
    await store_fixture.advance_time(2)
    assert await store_fixture.store.dead_letter([row], "ttl_expired") == [True]
    dead = await store_fixture.store.read(queue.id, number)
    assert dead is not None
    assert (dead.state, dead.dead_letter_reason) == (MessageState.DEAD_LETTERED, "ttl_expired")
    assert store_fixture.is_close(dead.dead_lettered_at, await store_fixture.store.now())
    await store_fixture.advance_time(10)
    assert await store_fixture.store.expired_messages(10) == []
    assert numbers(await store_fixture.claim(queue, source=MessageState.DEAD_LETTERED)) == [number]
    assert await store_fixture.store.dead_letter([], "nothing") == []


@pytest.mark.fence("time")
async def test_an_edit_survives_a_sweep_that_read_before_it(store_fixture: StoreFixture, queue: Queue) -> None:
    """A process may stop between its read and its write."""
    (number,) = await store_fixture.send(queue, b"body", ttl=MINUTE)
    await store_fixture.advance_time(61)
    overdue = await store_fixture.store.expired_messages(10)
    message = await store_fixture.store.read(queue.id, number)
    assert message is not None
    edited = await store_fixture.store.edit(Edit(message, delay=0))
    assert edited is not None
    assert await expire_messages(build_broker(store_fixture.store, store_fixture.clock).administration, overdue) == 0
    after = await store_fixture.store.read(queue.id, number)
    assert after is not None
    assert (after.state, after.expires_at) == (MessageState.AVAILABLE, edited.expires_at)


async def test_a_redrive_survives_a_sweep_that_read_before_it(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(dead_letter_on_expiry=True))
    broker = build_broker(store_fixture.store, store_fixture.clock)
    (number,) = await store_fixture.send(queue, b"body", ttl=MINUTE)
    await store_fixture.advance_time(61)
    overdue = await store_fixture.store.expired_messages(10)
    assert await expire_messages(broker.administration, overdue) == 1
    dead = UnlockedRow(number, queue.id, MessageState.DEAD_LETTERED)
    assert await store_fixture.store.redrive([Redrive(dead, queue.id)]) == [True]
    assert await expire_messages(broker.administration, overdue) == 0
    back = await store_fixture.store.read(queue.id, number)
    assert back is not None
    assert (back.state, back.dead_letter_reason) == (MessageState.AVAILABLE, None)


# ---- redrive ---------------------------------------------------------------------------------------------------------


async def test_a_redriven_message_starts_again_at_the_end(store_fixture: StoreFixture, queue: Queue) -> None:
    envelope = Envelope("id", properties=b'{"a":1}')
    await store_fixture.store.send([Draft(queue.id, envelope, b"dead", BodyKind.JSON, ttl=10 * SECOND)])
    (message,) = await store_fixture.claim(queue)
    why = {"dead_letter_reason": "why", "dead_letter_description": "how"}
    dead = abandonment(message, state=MessageState.DEAD_LETTERED, last_failure="it broke", **why)
    await store_fixture.store.move([dead])
    await store_fixture.advance_time(20)
    await store_fixture.send(queue, b"waits already")
    await store_fixture.advance_time(1)
    row = UnlockedRow(message.sequence_number, queue.id, MessageState.DEAD_LETTERED)
    assert await store_fixture.store.redrive([Redrive(row, queue.id)]) == [True]
    fresh = await store_fixture.store.read(queue.id, message.sequence_number)
    assert fresh is not None
    assert (fresh.state, fresh.delivery_count, fresh.failure_count) == (MessageState.AVAILABLE, 0, 0)
    assert (fresh.dead_letter_reason, fresh.dead_letter_description, fresh.dead_lettered_at) == (None, None, None)
    assert (fresh.first_delivered_at, fresh.last_delivered_at) == (None, None)
    assert (fresh.last_failure, fresh.expires_at) == (None, None)
    assert (fresh.envelope, fresh.body) == (envelope, b"dead")
    assert store_fixture.is_close(fresh.available_at, await store_fixture.store.now())
    received = await store_fixture.claim(queue)
    assert bodies(received) == [b"waits already", b"dead"]
    await store_fixture.store.remove([completion(queue, received[-1])])
    ((first, last),) = await store_fixture.archived(message.sequence_number, "first_delivered_at", "last_delivered_at")
    assert first == last


async def test_dead_letters_may_be_redriven_to_another_queue(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    rows = [await set_aside(store_fixture, queue, MessageState.DEAD_LETTERED) for _ in range(3)]
    redrives = [Redrive(rows[0], other.id), Redrive(rows[1], queue.id), Redrive(rows[2], other.id)]
    assert await store_fixture.store.redrive(redrives) == [True, True, True]
    assert numbers(await store_fixture.claim(other)) == [rows[0].sequence_number, rows[2].sequence_number]
    assert numbers(await store_fixture.claim(queue)) == [rows[1].sequence_number]
    assert await store_fixture.store.redrive([]) == []


async def test_the_tombstones_of_earlier_deliveries_survive_a_redrive(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.move(
        [abandonment(message, state=MessageState.DEAD_LETTERED, outcome=Outcome.DEAD_LETTERED)]
    )
    row = UnlockedRow(message.sequence_number, queue.id, MessageState.DEAD_LETTERED)
    await store_fixture.store.redrive([Redrive(row, queue.id)])
    (tombstone,) = await store_fixture.store.tombstones([token(message)])
    assert tombstone is not None
    assert tombstone.outcome is Outcome.DEAD_LETTERED
