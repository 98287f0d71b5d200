"""A receiver gets the messages again that it holds, under new tokens; a lock can last as long as its message."""

import asyncio
from typing import Any

import pytest

from app.broker.ports.receiving import Recovered
from app.broker.ports.settling import Extension
from app.broker.ports.store import Store
from app.domain.delivery import Recovery, is_redelivered, lock_end
from app.domain.instant import DAY, HOUR, SECOND
from app.domain.message import Message, MessageState
from app.domain.queue import HELD_LOCK_DURATION, Queue
from app.domain.settlement import NO_EXPIRED_GENERATION, Outcome, undelivered_release
from tests.contract.store_fixture import (
    LOCK_DURATION,
    StoreFixture,
    abandonment,
    bodies,
    claim,
    completion,
    numbers,
    token,
)

ENDED = LOCK_DURATION // SECOND
TTL = 2 * DAY


def recovery(queue: Queue, receiver_id: str = "worker", most: int = 100, **fields: Any) -> Recovery:
    """A recovery by a receiver."""
    return Recovery(queue.id, receiver_id, most, **{"lock_duration": LOCK_DURATION} | fields)


async def recover(store_fixture: StoreFixture, queue: Queue, **fields: Any) -> list[Message]:
    """Recover messages, without what is known of their renewals."""
    return (await store_fixture.store.recover(recovery(queue, **fields))).messages


async def held(store_fixture: StoreFixture, queue: Queue, *sent: bytes, **fields: Any) -> list[Message]:
    """Messages that `worker` holds."""
    await store_fixture.send(queue, *sent)
    return await store_fixture.claim(queue, receiver_id="worker", **fields)


async def test_a_receiver_gets_its_messages_again_in_order(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, b"low", priority=1)
    await store_fixture.claim(queue, receiver_id="worker")
    first = await held(store_fixture, queue, b"one", b"two")
    await store_fixture.advance_time(10)
    assert bodies(await recover(store_fixture, queue, most=1)) == [b"one"]
    again = await recover(store_fixture, queue)
    assert bodies(again) == [b"one", b"two", b"low"]
    for message in again:
        assert message.state is MessageState.LOCKED
        deliveries = 3 if message.body == b"one" else 2
        assert (message.delivery_count, message.failure_count, message.lock_generation) == (deliveries, 0, 0)
        now = await store_fixture.store.now()
        assert store_fixture.is_close(message.first_delivered_at, now - 10 * SECOND)
        assert store_fixture.is_close(message.last_delivered_at, now)
        assert message.receiver_id == "worker"
        assert is_redelivered(message)
        check_lock_end(message, LOCK_DURATION)
    assert not {message.lock_token for message in first} & {message.lock_token for message in again}


@pytest.mark.behaviour("S2.21")
async def test_a_recovery_of_messages_that_never_arrived_counts_no_delivery(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    await held(store_fixture, queue, b"one")
    (message,) = await recover(store_fixture, queue, counted=False)
    assert (message.delivery_count, is_redelivered(message)) == (1, False)
    assert await store_fixture.store.move([undelivered_release(message)]) == [True]
    (again,) = await store_fixture.claim(queue)
    assert again.delivery_count == 1


async def test_an_old_token_settles_nothing_and_its_tombstone_says_why(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    (old,) = await held(store_fixture, queue, b"one")
    (new,) = await recover(store_fixture, queue)
    assert await store_fixture.store.remove([completion(queue, old)]) == [False]
    (tombstone,) = await store_fixture.store.tombstones([token(old)])
    assert tombstone is not None
    assert tombstone.outcome is Outcome.RECOVERED
    assert await store_fixture.store.tombstones([token(new)]) == [None]
    assert await store_fixture.store.remove([completion(queue, new)]) == [True]


@pytest.mark.fence("receiver")
async def test_the_messages_of_other_receivers_stay_with_them(store_fixture: StoreFixture, queue: Queue) -> None:
    (message,) = await held(store_fixture, queue, b"one")
    assert await recover(store_fixture, queue, receiver_id="other") == []
    assert await store_fixture.store.remove([completion(queue, message)]) == [True]


@pytest.mark.fence("queue")
async def test_the_messages_of_other_queues_stay_as_they_are(store_fixture: StoreFixture, queue: Queue) -> None:
    (message,) = await held(store_fixture, queue, b"one")
    assert await recover(store_fixture, await store_fixture.queue()) == []
    assert await store_fixture.store.remove([completion(queue, message)]) == [True]


@pytest.mark.fence("time")
async def test_a_lock_that_has_ended_is_not_recovered(store_fixture: StoreFixture, queue: Queue) -> None:
    await held(store_fixture, queue, b"one")
    await store_fixture.advance_time(ENDED)
    assert await recover(store_fixture, queue) == []


@pytest.mark.fence("locked")
async def test_a_row_that_is_not_locked_is_not_recovered(store_fixture: StoreFixture, queue: Queue) -> None:
    await held(store_fixture, queue, b"one")
    # No statement writes such a row. The state is a second fence should a receiver ever outlive its lock.
    await store_fixture.execute("UPDATE message SET state = 1")
    assert await recover(store_fixture, queue) == []


async def test_a_recovery_has_a_limit_of_messages_and_of_bytes(store_fixture: StoreFixture, queue: Queue) -> None:
    await held(store_fixture, queue, b"a" * 5000, b"b" * 5000, b"c" * 5000)
    assert len(await recover(store_fixture, queue, most=2)) == 2
    assert len(await recover(store_fixture, queue, max_bytes=15_000)) == 2
    assert len(await recover(store_fixture, queue, max_bytes=1)) == 1
    assert len(await recover(store_fixture, queue)) == 3


async def test_a_recovery_reports_renewed_locks_and_ends_their_records(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    renewed, plain = await held(store_fixture, queue, b"one", b"two")
    assert await store_fixture.store.recover(recovery(queue, "other")) == Recovered([], [])
    extension = Extension(token(renewed), queue.id, LOCK_DURATION, NO_EXPIRED_GENERATION)
    assert await store_fixture.store.extend([extension]) != [None]
    recovered = await store_fixture.store.recover(recovery(queue))
    assert numbers(recovered.messages) == numbers([renewed, plain])
    assert recovered.renewed == [token(renewed)]
    assert await store_fixture.store.extend([extension]) == [None]
    changed = await store_fixture.store.queues.by_id(queue.id)
    assert changed is not None
    assert changed.lock_version == queue.lock_version + 1
    assert (await store_fixture.store.recover(recovery(queue))).renewed == []
    assert (await store_fixture.store.queues.by_id(queue.id)) == changed


async def test_one_of_two_recoveries_grants_the_valid_token(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    await held(store_fixture, queue, *(b"%d" % number for number in range(20)))
    one, other = await asyncio.gather(*(store.recover(recovery(queue)) for store in stores))
    granted = [*one.messages, *other.messages]
    assert {message.sequence_number for message in granted} == set(numbers(granted))
    settled = await store_fixture.store.remove([completion(queue, message) for message in granted])
    assert sum(settled) == 20


async def test_a_message_is_recovered_or_completed_but_not_both(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    messages = await held(store_fixture, queue, *(b"%d" % number for number in range(20)))
    completed, recovered = await asyncio.gather(
        stores[0].remove([completion(queue, message) for message in messages]),
        stores[-1].recover(recovery(queue)),
    )
    done = {message.sequence_number for message, is_done in zip(messages, completed, strict=True) if is_done}
    assert not done & set(numbers(recovered.messages))
    assert len(done) + len(recovered.messages) == 20
    assert all(await store_fixture.store.remove([completion(queue, message) for message in recovered.messages]))


# ---- locks without an end --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ttl", [None, TTL])
async def test_a_lock_without_an_end_ends_when_its_message_expires(
    store_fixture: StoreFixture, queue: Queue, ttl: int | None
) -> None:
    await store_fixture.send(queue, b"one", b"two", b"three", ttl=ttl)
    for most in (1, 2):
        for message in await store_fixture.claim(queue, most, lock_duration=HELD_LOCK_DURATION, receiver_id="worker"):
            check_lock_end(message, HELD_LOCK_DURATION)
    for message in await recover(store_fixture, queue, lock_duration=HELD_LOCK_DURATION):
        check_lock_end(message, HELD_LOCK_DURATION)
    await store_fixture.advance_time(DAY // SECOND)
    assert await store_fixture.store.expired_locks(10) == []
    await store_fixture.advance_time(DAY // SECOND + 1)
    assert len(await store_fixture.store.expired_locks(10)) == (3 if ttl else 0)


async def test_a_lock_of_limited_duration_may_outlive_its_message(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, b"one", ttl=HOUR)
    (message,) = await store_fixture.claim(queue, lock_duration=12 * HOUR, receiver_id="worker")
    check_lock_end(message, 12 * HOUR)
    (message,) = await recover(store_fixture, queue, lock_duration=12 * HOUR)
    check_lock_end(message, 12 * HOUR)


async def moved(store_fixture: StoreFixture, queue: Queue, outcome: Outcome, state: MessageState) -> int:
    """A message with a time to live that its receiver has dead-lettered or deferred."""
    (number,) = await store_fixture.send(queue, b"one", ttl=TTL)
    (message,) = await store_fixture.claim(queue)
    assert await store_fixture.store.move([abandonment(message, outcome=outcome, state=state)]) == [True]
    return number


@pytest.mark.parametrize(
    ("outcome", "source"),
    [
        (Outcome.DEAD_LETTERED, MessageState.DEAD_LETTERED),
        (Outcome.DEFERRED, MessageState.DEFERRED),
        (Outcome.ABANDONED, MessageState.AVAILABLE),
    ],
)
async def test_messages_that_are_received_by_number_have_the_same_lock_end(
    store_fixture: StoreFixture, queue: Queue, outcome: Outcome, source: MessageState
) -> None:
    number = await moved(store_fixture, queue, outcome, source)
    request = claim(queue, source=source, lock_duration=HELD_LOCK_DURATION, receiver_id="worker")
    (message,) = await store_fixture.store.claim_by_number(request, [number])
    check_lock_end(message, HELD_LOCK_DURATION)
    (message,) = await recover(store_fixture, queue, lock_duration=HELD_LOCK_DURATION)
    check_lock_end(message, HELD_LOCK_DURATION)


async def test_a_dead_lettered_message_is_held_past_its_time(store_fixture: StoreFixture, queue: Queue) -> None:
    await moved(store_fixture, queue, Outcome.DEAD_LETTERED, MessageState.DEAD_LETTERED)
    await store_fixture.advance_time(TTL // SECOND + 1)
    request = claim(queue, source=MessageState.DEAD_LETTERED, lock_duration=HELD_LOCK_DURATION, receiver_id="worker")
    (message,) = await store_fixture.store.claim(request)
    check_lock_end(message, HELD_LOCK_DURATION)


def check_lock_end(message: Message, duration: int) -> None:
    """The lock ends when the rule says."""
    assert message.last_delivered_at is not None
    assert message.locked_until == lock_end(message.last_delivered_at, duration, message.expires_at, message.home_state)
