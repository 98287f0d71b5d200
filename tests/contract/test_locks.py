"""Locks are renewed by receivers. They end by time, expired generation or revocation, and leave a tombstone."""

import asyncio
from dataclasses import replace as replace_field

import pytest
from msgspec.structs import replace

from app.broker.ports.settling import Extension
from app.broker.ports.store import Store
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.settlement import (
    LOCK_EXPIRED_REASON,
    MAX_DELIVERY_COUNT_REASON,
    NO_EXPIRED_GENERATION,
    Outcome,
    fence_above,
)
from tests.contract.store_fixture import (
    LOCK_DURATION,
    StoreFixture,
    abandonment,
    bodies,
    completion,
    expiry,
    numbers,
    token,
    with_wrong_token,
)

ENDED = LOCK_DURATION // SECOND + 1


def extension(
    queue: Queue, message: Message, by: int = LOCK_DURATION, expired_generation: int = NO_EXPIRED_GENERATION
) -> Extension:
    """An extension: the receiver renews the lock."""
    return Extension(token(message), queue.id, by, expired_generation)


def exactly(queue: Queue, message: Message, duration: int, generation: int) -> Extension:
    """An extension that sets the end of a lock in this generation."""
    return replace_field(extension(queue, message, duration), max_generation=generation, is_exact=True)


# ---- renewing --------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S3.15")
async def test_a_renewed_lock_ends_later(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.advance_time(20)
    now = await store_fixture.store.now()
    (extended,) = await store_fixture.store.extend([extension(queue, message)])
    assert extended is not None
    assert extended.generation == 1
    assert store_fixture.is_close(extended.locked_until, now + LOCK_DURATION)
    assert store_fixture.is_close(extended.read_at, now)
    (locked,) = await store_fixture.store.locked_messages([token(message)])
    assert locked is not None
    assert (locked.locked_until, locked.lock_generation) == (extended.locked_until, 1)
    await store_fixture.advance_time(20)
    assert await store_fixture.store.expired_locks(10) == []
    assert await store_fixture.store.remove(
        [replace(completion(queue, message), fence=fence_above(NO_EXPIRED_GENERATION))]
    ) == [True]


async def test_a_renewal_never_shortens_a_lock_and_counts_each_time(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    first, shorter, longer = [
        (await store_fixture.store.extend([extension(queue, message, by)]))[0] for by in (MINUTE, SECOND, 2 * MINUTE)
    ]
    assert first is not None
    assert shorter is not None
    assert longer is not None
    assert [first.generation, shorter.generation, longer.generation] == [1, 2, 3]
    assert shorter.locked_until == first.locked_until < longer.locked_until
    assert first.previous_locked_until == message.locked_until
    assert (shorter.previous_locked_until, longer.previous_locked_until) == (first.locked_until, shorter.locked_until)


@pytest.mark.parametrize("seconds", [5, 120], ids=["earlier", "later"])
@pytest.mark.parametrize("renewals", [0, 2])
async def test_an_exact_end_replaces_the_end_of_a_lock_and_its_generation_stays(
    store_fixture: StoreFixture, queue: Queue, seconds: int, renewals: int
) -> None:
    message = await store_fixture.locked(queue)
    for _ in range(renewals):
        await store_fixture.store.extend([extension(queue, message)])
    (changed,) = await store_fixture.store.extend([exactly(queue, message, seconds * SECOND, renewals)])
    assert changed is not None
    assert (changed.generation, changed.locked_until) == (renewals, changed.read_at + seconds * SECOND)
    assert changed.previous_locked_until >= message.locked_until
    await store_fixture.advance_time(seconds - 2)
    assert await store_fixture.store.expired_locks(10) == []
    await store_fixture.advance_time(3)
    assert [locked.token for locked in await store_fixture.store.expired_locks(10)] == [token(message)]


async def test_an_exact_end_has_no_effect_if_the_lock_was_renewed_since_it_was_read(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    (renewed,) = await store_fixture.store.extend([extension(queue, message, MINUTE)])
    assert renewed is not None
    assert await store_fixture.store.extend([exactly(queue, message, SECOND, 0)]) == [None]
    (locked,) = await store_fixture.store.locked_messages([token(message)])
    assert locked is not None
    assert locked.locked_until == renewed.locked_until


async def test_a_renewal_and_an_exact_end_in_one_batch_take_effect_one_after_the_other(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    exact, renewed, stale = await store_fixture.store.extend(
        [exactly(queue, message, SECOND, 0), extension(queue, message), exactly(queue, message, SECOND, 0)]
    )
    assert exact is not None
    assert renewed is not None
    assert (exact.generation, renewed.generation, stale) == (0, 1, None)
    assert renewed.previous_locked_until == exact.locked_until < renewed.locked_until


async def test_each_concurrent_renewal_knows_the_result_of_the_earlier_ones(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    calls = [store_fixture.store.extend([extension(queue, message, by)]) for by in (MINUTE, 3 * MINUTE, 2 * MINUTE)]
    calls.append(store_fixture.store.extend([extension(queue, message, MINUTE), extension(queue, message, 4 * MINUTE)]))
    answers = [answer for answers in await asyncio.gather(*calls) for answer in answers]
    in_order = sorted((answer for answer in answers if answer is not None), key=lambda answer: answer.generation)
    assert [answer.previous_locked_until for answer in in_order] == [
        message.locked_until, *(answer.locked_until for answer in in_order[:-1])
    ]  # fmt: skip


async def test_renewals_of_one_request_are_answered_in_order(store_fixture: StoreFixture, queue: Queue) -> None:
    one, two = await store_fixture.locked(queue), await store_fixture.locked(queue)
    extensions = [extension(queue, two, MINUTE), extension(queue, with_wrong_token(one)), extension(queue, one)]
    first, none, second = await store_fixture.store.extend(extensions)
    assert none is None
    assert first is not None
    assert second is not None
    assert (first.generation, second.generation) == (1, 1)
    assert first.locked_until > second.locked_until


async def test_a_renewal_repeated_by_a_proxy_loses_no_lock(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    calls = [store_fixture.store.extend([extension(queue, message)] * 2) for _ in range(4)]
    assert all(answer is not None for answers in await asyncio.gather(*calls) for answer in answers)


async def test_a_message_abandoned_after_renewal_starts_with_a_new_lock(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.extend([extension(queue, message)])
    await store_fixture.store.move([replace(abandonment(message), fence=fence_above(NO_EXPIRED_GENERATION))])
    (again,) = await store_fixture.claim(queue)
    assert again.lock_generation == 0
    assert await store_fixture.store.remove([completion(queue, again)]) == [True]


# ---- expiry ----------------------------------------------------------------------------------------------------------


@pytest.mark.fence("time")
@pytest.mark.behaviour("S2.20", "S3.23", "S0.21", "S2.23")
async def test_an_ended_lock_is_found_and_its_message_released(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    assert await store_fixture.store.expired_locks(10) == []
    await store_fixture.advance_time(ENDED)
    assert await store_fixture.claim(queue) == []
    (locked,) = await store_fixture.store.expired_locks(10)
    assert locked.token == token(message)
    assert not locked.is_live
    assert await store_fixture.store.release([expiry(message, last_failure=LOCK_EXPIRED_REASON)]) == [True]
    assert await store_fixture.store.expired_locks(10) == []
    (again,) = await store_fixture.claim(queue)
    assert (again.delivery_count, again.failure_count, again.last_failure) == (2, 1, LOCK_EXPIRED_REASON)


@pytest.mark.behaviour("S3.34")
async def test_an_ended_lock_leaves_a_tombstone(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.advance_time(ENDED)
    await store_fixture.store.release([expiry(message)])
    (tombstone,) = await store_fixture.store.tombstones([token(message)])
    assert tombstone is not None
    assert (tombstone.outcome, tombstone.state) == (Outcome.LOCK_EXPIRED, MessageState.AVAILABLE)


async def test_a_tombstone_has_the_time_when_the_lock_ended(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    assert message.locked_until is not None
    late = 3600
    await store_fixture.advance_time(late)
    await store_fixture.store.release([expiry(message)])
    (tombstone,) = await store_fixture.store.tombstones([token(message)])
    assert tombstone is not None
    # SQLite's clock moves forward. On a server the test moves the rows back instead.
    assert tombstone.settled_at in (message.locked_until, message.locked_until - late * SECOND)


async def test_a_tombstone_of_an_expired_generation_has_the_time_of_its_release(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue, lock_duration=HOUR)
    await store_fixture.store.extend([extension(queue, message)])
    now = await store_fixture.store.now()
    assert await store_fixture.store.release([replace(expiry(message), fence=fence_above(1))]) == [True]
    (tombstone,) = await store_fixture.store.tombstones([token(message)])
    assert tombstone is not None
    assert store_fixture.is_close(tombstone.settled_at, now)


async def test_expired_locks_are_listed_oldest_first_up_to_the_limit(store_fixture: StoreFixture, queue: Queue) -> None:
    sent = await store_fixture.send(queue, b"a", b"b", b"c")
    taken = [
        (await store_fixture.claim(queue, 1, lock_duration=length))[0]
        for length in (30 * SECOND, 10 * SECOND, 20 * SECOND)
    ]
    assert numbers(taken) == sent
    await store_fixture.advance_time(40)
    ended = await store_fixture.store.expired_locks(2)
    assert [locked.token.sequence_number for locked in ended] == [sent[1], sent[2]]
    assert len(await store_fixture.store.expired_locks(10)) == 3


@pytest.mark.behaviour("S2.8", "S3.18")
async def test_a_released_message_may_be_delayed_or_dead_lettered(store_fixture: StoreFixture, queue: Queue) -> None:
    waits, dies = await store_fixture.locked(queue), await store_fixture.locked(queue)
    await store_fixture.advance_time(ENDED)
    effective = await store_fixture.store.release(
        [
            expiry(waits, state=MessageState.SCHEDULED, delay=MINUTE, last_failure=LOCK_EXPIRED_REASON),
            expiry(dies, state=MessageState.DEAD_LETTERED, dead_letter_reason=MAX_DELIVERY_COUNT_REASON),
        ]
    )
    assert effective == [True, True]
    delayed = await store_fixture.store.read(queue.id, waits.sequence_number)
    assert delayed is not None
    assert (delayed.state, delayed.failure_count, delayed.last_failure) == (
        MessageState.SCHEDULED,
        1,
        LOCK_EXPIRED_REASON,
    )
    assert store_fixture.is_close(delayed.available_at, await store_fixture.store.now() + MINUTE)
    assert (delayed.lock_token, delayed.locked_until) == (None, None)
    await store_fixture.advance_time(20)
    assert await store_fixture.claim(queue) == []
    dead = await store_fixture.store.read(queue.id, dies.sequence_number)
    assert dead is not None
    assert (dead.state, dead.dead_letter_reason) == (MessageState.DEAD_LETTERED, MAX_DELIVERY_COUNT_REASON)
    assert (dead.failure_count, dead.lock_token, dead.locked_until) == (1, None, None)
    assert await store_fixture.claim(queue, source=MessageState.DEAD_LETTERED) != []
    await store_fixture.advance_time(41)
    await store_fixture.store.promote(10)
    assert numbers(await store_fixture.claim(queue)) == [waits.sequence_number]


async def test_concurrent_sweeps_release_a_message_once(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    sent = await store_fixture.send(queue, *[b"body"] * 20)
    messages = await store_fixture.claim(queue)
    await store_fixture.advance_time(ENDED)
    sweeps = [stores[index % 2].release([expiry(message) for message in messages]) for index in range(6)]
    effective = await asyncio.gather(*sweeps)
    assert [sum(effects) for effects in zip(*effective, strict=True)] == [1] * 20
    again = await store_fixture.claim(queue)
    assert numbers(again) == sent
    assert {message.failure_count for message in again} == {1}


@pytest.mark.behaviour("S0.23", "S0.24")
async def test_of_a_completion_and_a_release_by_expired_generation_one_takes_effect(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    for _ in range(15):
        message = await store_fixture.locked(queue)
        await store_fixture.store.extend([extension(queue, message)])
        expired_generation = 1
        removal = replace(completion(queue, message), fence=fence_above(0))
        release = replace(expiry(message), fence=fence_above(expired_generation))
        (removed,), (released,) = await asyncio.gather(stores[0].remove([removal]), stores[1].release([release]))
        assert removed is not released
        assert await store_fixture.state(message) is (None if removed else MessageState.AVAILABLE)
        (tombstone,) = await store_fixture.store.tombstones([token(message)])
        assert tombstone is not None
        assert tombstone.outcome is (Outcome.COMPLETED if removed else Outcome.LOCK_EXPIRED)
        await store_fixture.store.move(
            [abandonment(m, state=MessageState.DEFERRED) for m in await store_fixture.claim(queue)]
        )


@pytest.mark.behaviour("S0.20", "S0.21", "S0.22")
async def test_a_concurrent_abandonment_and_release_leave_the_message_unlocked(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    """Each of the two runs first in some rounds, so each wins in some."""
    outcomes: set[Outcome] = set()
    for first in ("abandonment", "release", "both") * 5:
        message = await store_fixture.locked(queue)
        await store_fixture.store.extend([extension(queue, message)])
        given_back = replace(abandonment(message, last_failure="gave up"), fence=fence_above(0))
        ended = replace(expiry(message, last_failure=LOCK_EXPIRED_REASON), fence=fence_above(1))
        if first == "abandonment":
            abandoned, released = await stores[0].move([given_back]), await stores[1].release([ended])
        elif first == "release":
            released, abandoned = await stores[1].release([ended]), await stores[0].move([given_back])
        else:
            abandoned, released = await asyncio.gather(stores[0].move([given_back]), stores[1].release([ended]))
        assert [*abandoned, *released].count(True) == 1
        after = await store_fixture.store.read(queue.id, message.sequence_number)
        assert after is not None
        assert (after.state, after.lock_token, after.locked_until) == (MessageState.AVAILABLE, None, None)
        assert (after.delivery_count, after.failure_count) == (1, 1)
        assert after.last_failure == ("gave up" if abandoned == [True] else LOCK_EXPIRED_REASON)
        (tombstone,) = await store_fixture.store.tombstones([token(message)])
        assert tombstone is not None
        outcomes.add(tombstone.outcome)
        (again,) = await store_fixture.claim(queue)
        await store_fixture.store.remove([completion(queue, again)])
    assert outcomes == {Outcome.ABANDONED, Outcome.LOCK_EXPIRED}


# ---- revocation ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S3.33")
async def test_the_locks_of_one_queue_are_revoked(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.locked(await store_fixture.queue())
    living, ended = await store_fixture.locked(queue, lock_duration=MINUTE), await store_fixture.locked(queue)
    await store_fixture.store.extend([extension(queue, living, MINUTE)])
    await store_fixture.advance_time(ENDED)
    now = await store_fixture.store.now()
    locked = await store_fixture.store.locks_of_queue(queue.id, now, 10)
    assert [locked_message.token for locked_message in locked] == [token(living), token(ended)]
    assert len(await store_fixture.store.locks_of_queue(queue.id, now, 1)) == 1
    assert await store_fixture.store.locks_of_queue(queue.id, now - (ENDED + 60) * SECOND, 10) == []
    fence = fence_above(NO_EXPIRED_GENERATION)
    moves = [abandonment(m, outcome=Outcome.ENTITY_CHANGED, failures=0, fence=fence) for m in (living, ended, other)]
    moves[2] = replace(moves[2], queue_id=queue.id)
    assert await store_fixture.store.move(moves) == [True, False, False]
    assert await store_fixture.store.release(moves[1:]) == [True, False]
    tombstones = await store_fixture.store.tombstones([token(living), token(ended)])
    assert [tombstone and tombstone.outcome for tombstone in tombstones] == [Outcome.ENTITY_CHANGED] * 2
    assert await store_fixture.store.remove(
        [replace(completion(queue, living), fence=fence_above(NO_EXPIRED_GENERATION))]
    ) == [False]
    assert bodies(await store_fixture.claim(queue)) == [b"body"] * 2


async def test_a_purge_of_locks_counts_if_it_removed_a_message(store_fixture: StoreFixture, queue: Queue) -> None:
    messages = [await store_fixture.locked(queue) for _ in range(2)]
    for removals, count in [
        ([completion(queue, with_wrong_token(message)) for message in messages], 0),
        ([completion(queue, with_wrong_token(messages[0])), completion(queue, messages[1])], 1),
    ]:
        await store_fixture.store.remove_locked(queue.id, removals)
        found = await store_fixture.store.queues.by_id(queue.id)
        assert found is not None
        assert found.lock_purges == count
