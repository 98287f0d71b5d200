"""Locks are prolonged by their holders, end by themselves, by evidence or by an administrator, and always leave a trace."""

import asyncio
from dataclasses import replace

import pytest

from app.broker.ports import Extension, Store
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.settlement import LIMIT_REACHED, LOCK_EXPIRED, NO_EVIDENCE, Outcome, cleared
from tests.contract.subject import (
    LOCK,
    Subject,
    abandonment,
    bodies,
    completion,
    expiry,
    is_close,
    numbers,
    stranger,
    token,
)

ENDED = LOCK // SECOND + 1


def extension(queue: Queue, message: Message, by: int = LOCK, evidence: int = NO_EVIDENCE) -> Extension:
    """The holder renews the lock."""
    return Extension(token(message), queue.id, by, evidence)


# ---- renewing --------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S3.15")
async def test_a_renewed_lock_ends_later(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    await subject.pass_time(20)
    now = await subject.store.now()
    (extended,) = await subject.store.extend([extension(queue, message)])
    assert extended is not None
    assert extended.generation == 1
    assert is_close(extended.locked_until, now + LOCK)
    assert is_close(extended.read_at, now)
    (held,) = await subject.store.held([token(message)])
    assert held is not None
    assert (held.locked_until, held.lock_generation) == (extended.locked_until, 1)
    await subject.pass_time(20)
    assert await subject.store.ended_locks(10) == []
    assert await subject.store.remove([replace(completion(queue, message), fence=cleared(NO_EVIDENCE))]) == [True]


async def test_a_renewal_never_shortens_a_lock_and_counts_each_time(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    first, shorter, longer = [
        (await subject.store.extend([extension(queue, message, by)]))[0] for by in (MINUTE, SECOND, 2 * MINUTE)
    ]
    assert first is not None
    assert shorter is not None
    assert longer is not None
    assert [first.generation, shorter.generation, longer.generation] == [1, 2, 3]
    assert shorter.locked_until == first.locked_until < longer.locked_until
    assert first.before == message.locked_until
    assert (shorter.before, longer.before) == (first.locked_until, shorter.locked_until)


async def test_of_renewals_at_once_each_knows_how_far_those_before_it_went(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    calls = [subject.store.extend([extension(queue, message, by)]) for by in (MINUTE, 3 * MINUTE, 2 * MINUTE)]
    calls.append(subject.store.extend([extension(queue, message, MINUTE), extension(queue, message, 4 * MINUTE)]))
    answers = [answer for answers in await asyncio.gather(*calls) for answer in answers]
    in_order = sorted((answer for answer in answers if answer is not None), key=lambda answer: answer.generation)
    assert [answer.before for answer in in_order] == [
        message.locked_until, *(answer.locked_until for answer in in_order[:-1])
    ]  # fmt: skip


async def test_renewals_of_one_call_are_answered_in_order(subject: Subject, queue: Queue) -> None:
    one, two = await subject.locked(queue), await subject.locked(queue)
    asked = [extension(queue, two, MINUTE), extension(queue, stranger(one)), extension(queue, one)]
    first, none, second = await subject.store.extend(asked)
    assert none is None
    assert first is not None
    assert second is not None
    assert (first.generation, second.generation) == (1, 1)
    assert first.locked_until > second.locked_until


async def test_a_renewal_that_a_proxy_doubled_is_no_lost_lock(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    calls = [subject.store.extend([extension(queue, message)] * 2) for _ in range(4)]
    assert all(answer is not None for answers in await asyncio.gather(*calls) for answer in answers)


async def test_a_message_abandoned_after_renewal_begins_anew(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    await subject.store.extend([extension(queue, message)])
    await subject.store.move([replace(abandonment(message), fence=cleared(NO_EVIDENCE))])
    (again,) = await subject.claim(queue)
    assert again.lock_generation == 0
    assert await subject.store.remove([completion(queue, again)]) == [True]


# ---- ending by themselves --------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S2.20", "S3.23", "S0.21", "S2.23")
async def test_an_ended_lock_is_found_and_its_message_freed(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    assert await subject.store.ended_locks(10) == []
    await subject.pass_time(ENDED)
    assert await subject.claim(queue) == []
    (held,) = await subject.store.ended_locks(10)
    assert held.token == token(message)
    assert not held.is_live
    assert await subject.store.release([expiry(message, last_failure=LOCK_EXPIRED)]) == [True]
    assert await subject.store.ended_locks(10) == []
    (again,) = await subject.claim(queue)
    assert (again.delivery_count, again.failure_count, again.last_failure) == (2, 1, LOCK_EXPIRED)


@pytest.mark.behaviour("S3.34")
async def test_an_ended_lock_leaves_a_tombstone(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    await subject.pass_time(ENDED)
    await subject.store.release([expiry(message)])
    (stone,) = await subject.store.tombstones([token(message)])
    assert stone is not None
    assert (stone.outcome, stone.state) == (Outcome.LOCK_EXPIRED, MessageState.AVAILABLE)


async def test_the_tombstone_says_when_the_lock_ended_not_when_that_was_seen(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    assert message.locked_until is not None
    late = 3600
    await subject.pass_time(late)
    await subject.store.release([expiry(message)])
    (stone,) = await subject.store.tombstones([token(message)])
    assert stone is not None
    # What is an instant of the past on a clock that tests move, is one shifted back on a clock that they do not.
    assert stone.settled_at in (message.locked_until, message.locked_until - late * SECOND)


async def test_the_tombstone_of_a_lock_that_evidence_ended_says_when_that_was_acted_upon(
    subject: Subject, queue: Queue
) -> None:
    message = await subject.locked(queue, lock_duration=HOUR)
    await subject.store.extend([extension(queue, message)])
    now = await subject.store.now()
    assert await subject.store.release([replace(expiry(message), fence=cleared(1))]) == [True]
    (stone,) = await subject.store.tombstones([token(message)])
    assert stone is not None
    assert is_close(stone.settled_at, now)


async def test_ended_locks_come_oldest_first_and_bounded(subject: Subject, queue: Queue) -> None:
    sent = await subject.send(queue, b"a", b"b", b"c")
    taken = [
        (await subject.claim(queue, 1, lock_duration=length))[0] for length in (30 * SECOND, 10 * SECOND, 20 * SECOND)
    ]
    assert numbers(taken) == sent
    await subject.pass_time(40)
    ended = await subject.store.ended_locks(2)
    assert [held.token.sequence_number for held in ended] == [sent[1], sent[2]]
    assert len(await subject.store.ended_locks(10)) == 3


@pytest.mark.behaviour("S2.8", "S3.18")
async def test_a_lock_may_end_in_a_delay_or_among_the_dead_letters(subject: Subject, queue: Queue) -> None:
    waits, dies = await subject.locked(queue), await subject.locked(queue)
    await subject.pass_time(ENDED)
    took = await subject.store.release(
        [
            expiry(waits, state=MessageState.SCHEDULED, delay=MINUTE, last_failure=LOCK_EXPIRED),
            expiry(dies, state=MessageState.DEAD_LETTERED, dead_letter_reason=LIMIT_REACHED),
        ]
    )
    assert took == [True, True]
    delayed = await subject.store.read(queue.id, waits.sequence_number)
    assert delayed is not None
    assert (delayed.state, delayed.failure_count, delayed.last_failure) == (MessageState.SCHEDULED, 1, LOCK_EXPIRED)
    assert is_close(delayed.available_at, await subject.store.now() + MINUTE)
    assert (delayed.lock_token, delayed.locked_until) == (None, None)
    await subject.pass_time(55)
    assert await subject.claim(queue) == []
    dead = await subject.store.read(queue.id, dies.sequence_number)
    assert dead is not None
    assert (dead.state, dead.dead_letter_reason) == (MessageState.DEAD_LETTERED, LIMIT_REACHED)
    assert (dead.failure_count, dead.lock_token, dead.locked_until) == (1, None, None)
    assert await subject.claim(queue, source=MessageState.DEAD_LETTERED) != []
    await subject.pass_time(10)
    await subject.store.awaken(10)
    assert numbers(await subject.claim(queue)) == [waits.sequence_number]


async def test_many_sweepers_free_a_message_once(subject: Subject, stores: list[Store], queue: Queue) -> None:
    sent = await subject.send(queue, *[b"body"] * 20)
    messages = await subject.claim(queue)
    await subject.pass_time(ENDED)
    sweeps = [stores[place % 2].release([expiry(message) for message in messages]) for place in range(6)]
    took = await asyncio.gather(*sweeps)
    assert [sum(effects) for effects in zip(*took, strict=True)] == [1] * 20
    again = await subject.claim(queue)
    assert numbers(again) == sent
    assert {message.failure_count for message in again} == {1}


@pytest.mark.behaviour("S0.23", "S0.24")
async def test_of_a_completion_and_a_release_on_evidence_one_takes_effect(
    subject: Subject, stores: list[Store], queue: Queue
) -> None:
    for _ in range(15):
        message = await subject.locked(queue)
        await subject.store.extend([extension(queue, message)])
        evidence = 1
        removal = replace(completion(queue, message), fence=cleared(0))
        release = replace(expiry(message), fence=cleared(evidence))
        (removed,), (released,) = await asyncio.gather(stores[0].remove([removal]), stores[1].release([release]))
        assert removed is not released
        assert await subject.state(message) is (None if removed else MessageState.AVAILABLE)
        (stone,) = await subject.store.tombstones([token(message)])
        assert stone is not None
        assert stone.outcome is (Outcome.COMPLETED if removed else Outcome.LOCK_EXPIRED)
        await subject.store.move([abandonment(m, state=MessageState.DEFERRED) for m in await subject.claim(queue)])


@pytest.mark.behaviour("S0.20", "S0.21", "S0.22")
async def test_a_message_ends_unlocked_when_an_abandonment_and_a_release_meet(
    subject: Subject, stores: list[Store], queue: Queue
) -> None:
    """Each of them comes first some of the time, so each wins."""
    outcomes: set[Outcome] = set()
    for first in ("abandonment", "release", "both") * 5:
        message = await subject.locked(queue)
        await subject.store.extend([extension(queue, message)])
        given_back = replace(abandonment(message, last_failure="gave up"), fence=cleared(0))
        ended = replace(expiry(message, last_failure=LOCK_EXPIRED), fence=cleared(1))
        if first == "abandonment":
            abandoned, released = await stores[0].move([given_back]), await stores[1].release([ended])
        elif first == "release":
            released, abandoned = await stores[1].release([ended]), await stores[0].move([given_back])
        else:
            abandoned, released = await asyncio.gather(stores[0].move([given_back]), stores[1].release([ended]))
        assert [*abandoned, *released].count(True) == 1
        after = await subject.store.read(queue.id, message.sequence_number)
        assert after is not None
        assert (after.state, after.lock_token, after.locked_until) == (MessageState.AVAILABLE, None, None)
        assert (after.delivery_count, after.failure_count) == (1, 1)
        assert after.last_failure == ("gave up" if abandoned == [True] else LOCK_EXPIRED)
        (stone,) = await subject.store.tombstones([token(message)])
        assert stone is not None
        outcomes.add(stone.outcome)
        (again,) = await subject.claim(queue)
        await subject.store.remove([completion(queue, again)])
    assert outcomes == {Outcome.ABANDONED, Outcome.LOCK_EXPIRED}


# ---- taken away ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S3.33")
async def test_an_administrator_takes_the_locks_of_one_queue(subject: Subject, queue: Queue) -> None:
    other = await subject.locked(await subject.queue())
    living, ended = await subject.locked(queue, lock_duration=MINUTE), await subject.locked(queue)
    await subject.store.extend([extension(queue, living, MINUTE)])
    await subject.pass_time(ENDED)
    now = await subject.store.now()
    held = await subject.store.locks_of_queue(queue.id, now, 10)
    assert [one.token for one in held] == [token(living), token(ended)]
    assert len(await subject.store.locks_of_queue(queue.id, now, 1)) == 1
    assert await subject.store.locks_of_queue(queue.id, now - (ENDED + 60) * SECOND, 10) == []
    fence = cleared(NO_EVIDENCE)
    moves = [abandonment(m, outcome=Outcome.ENTITY_CHANGED, failures=0, fence=fence) for m in (living, ended, other)]
    moves[2] = replace(moves[2], queue_id=queue.id)
    assert await subject.store.move(moves) == [True, False, False]
    assert await subject.store.release(moves[1:]) == [True, False]
    stones = await subject.store.tombstones([token(living), token(ended)])
    assert [stone and stone.outcome for stone in stones] == [Outcome.ENTITY_CHANGED] * 2
    assert await subject.store.remove([replace(completion(queue, living), fence=cleared(NO_EVIDENCE))]) == [False]
    assert bodies(await subject.claim(queue)) == [b"body"] * 2


async def test_a_purge_of_locks_counts_where_it_has_removed_anything(subject: Subject, queue: Queue) -> None:
    messages = [await subject.locked(queue) for _ in range(2)]
    for removals, count in [
        ([completion(queue, stranger(message)) for message in messages], 0),
        ([completion(queue, stranger(messages[0])), completion(queue, messages[1])], 1),
    ]:
        await subject.store.remove_locked(queue.id, removals)
        found = await subject.store.queues.by_id(queue.id)
        assert found is not None
        assert found.lock_purges == count
