"""Each condition that guards a row, tried from the wrong side: scenarios that pass only while every fence stands."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from msgspec.structs import replace

from app.broker.ports import Attempt, Edit, Extension, Redrive, Store, UnlockedRow, Withdrawal
from app.domain.archive import ArchiveBatch, RemovalCause
from app.domain.delivery import Claim
from app.domain.instant import HOUR, MINUTE, SECOND, Duration
from app.domain.message import BodyKind, Draft, Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import (
    NEVER_RENEWED,
    NO_EXPIRED_GENERATION,
    Fence,
    LockToken,
    Move,
    Outcome,
    Removal,
    fence_above,
)
from tests.faults.store_setup import StoreSetup, token_of


@dataclass(frozen=True, slots=True)
class FencedCall:
    """A verb that ends or prolongs a delivery: whether it took effect, asked with this token, queue and fence."""

    name: str
    run: Callable[[Store, LockToken, Queue, Fence], Awaitable[bool]]

    def __str__(self) -> str:
        return self.name


async def _remove(store: Store, token: LockToken, queue: Queue, fence: Fence) -> bool:
    (took,) = await store.remove([Removal(token, queue.id, queue.name, Outcome.COMPLETED, HOUR, fence)])
    return took


async def _move(store: Store, token: LockToken, queue: Queue, fence: Fence) -> bool:
    (took,) = await store.move([_back(token, queue, Outcome.ABANDONED, fence)])
    return took


async def _extend(store: Store, token: LockToken, queue: Queue, fence: Fence) -> bool:
    (extended,) = await store.extend([Extension(token, queue.id, MINUTE, fence.generation_above)])
    return extended is not None


async def _release(store: Store, token: LockToken, queue: Queue, fence: Fence) -> bool:
    (took,) = await store.release([_back(token, queue, Outcome.LOCK_EXPIRED, fence)])
    return took


def _back(token: LockToken, queue: Queue, outcome: Outcome, fence: Fence) -> Move:
    return Move(token, queue.id, outcome, MessageState.AVAILABLE, fence=fence)


REMOVE, MOVE = FencedCall("remove", _remove), FencedCall("move", _move)
EXTEND, RELEASE = FencedCall("extend", _extend), FencedCall("release", _release)

HOLDERS = (REMOVE, MOVE, EXTEND)
"""What the holder of a lock asks while it lives."""


@asynccontextmanager
async def _under_lock(setup: StoreSetup, call: FencedCall) -> AsyncIterator[tuple[Queue, Message, LockToken]]:
    """A locked message on which the verb would take effect; afterwards it must be as it was."""
    queue = await setup.queue()
    message = await setup.lock(queue)
    if call is RELEASE:
        await setup.pass_time(HOUR)
    before = replace(await setup.reload(message), read_at=0)
    yield queue, message, token_of(message)
    after = await setup.store.read(queue.id, message.sequence_number)
    assert after is not None
    assert replace(after, read_at=0) == before


# ---- deliveries ------------------------------------------------------------------------------------------------------


async def a_foreign_token_has_no_effect(setup: StoreSetup) -> None:
    for call in (*HOLDERS, RELEASE):
        async with _under_lock(setup, call) as (queue, _, token):
            foreign = replace(token, secret=secrets.token_bytes(16))
            assert not await call.run(setup.store, foreign, queue, NEVER_RENEWED), call


async def another_queue_has_no_effect(setup: StoreSetup) -> None:
    other = await setup.queue()
    for call in (*HOLDERS, RELEASE):
        async with _under_lock(setup, call) as (_, _, token):
            assert not await call.run(setup.store, token, other, NEVER_RENEWED), call


async def a_token_on_an_unlocked_row_has_no_effect(setup: StoreSetup) -> None:
    for call in (*HOLDERS, RELEASE):
        queue = await setup.queue()
        message = await setup.lock(queue)
        if call is RELEASE:
            await setup.pass_time(HOUR)
        await setup.set_state(message, MessageState.DEFERRED)
        assert not await call.run(setup.store, token_of(message), queue, NEVER_RENEWED), call
        assert (await setup.reload(message)).state is MessageState.DEFERRED, call


async def a_lock_that_ran_out_cannot_be_used(setup: StoreSetup) -> None:
    for call in HOLDERS:
        queue = await setup.queue()
        message = await setup.lock(queue)
        await setup.pass_time(MINUTE + SECOND)
        assert not await call.run(setup.store, token_of(message), queue, NEVER_RENEWED), call
        assert (await setup.reload(message)).state is MessageState.LOCKED, call


async def a_renewed_lock_needs_a_second_check(setup: StoreSetup) -> None:
    for call in (REMOVE, MOVE):
        queue = await setup.queue()
        message = await setup.lock(queue)
        assert await _extend(setup.store, token_of(message), queue, fence_above(NO_EXPIRED_GENERATION))
        assert not await call.run(setup.store, token_of(message), queue, NEVER_RENEWED), call
        assert await call.run(setup.store, token_of(message), queue, fence_above(NO_EXPIRED_GENERATION)), call


async def a_generation_that_has_expired_cannot_be_used(setup: StoreSetup) -> None:
    for call in HOLDERS:
        queue = await setup.queue()
        message = await setup.lock(queue)
        assert await _extend(setup.store, token_of(message), queue, fence_above(NO_EXPIRED_GENERATION))
        assert not await call.run(setup.store, token_of(message), queue, fence_above(1)), call
        assert await call.run(setup.store, token_of(message), queue, fence_above(0)), call


async def a_lock_to_be_revoked_is_not_prolonged(setup: StoreSetup) -> None:
    queue = await setup.queue()
    message = await setup.lock(queue)
    assert await setup.store.queues.change(queue, QueueSettings(max_delivery_count=3)) is not None
    assert not await _extend(setup.store, token_of(message), queue, fence_above(NO_EXPIRED_GENERATION))
    later = await setup.lock(queue)
    assert await _extend(setup.store, token_of(later), queue, fence_above(NO_EXPIRED_GENERATION))


async def a_living_lock_is_not_released(setup: StoreSetup) -> None:
    queue = await setup.queue()
    message = await setup.lock(queue)
    assert not await _release(setup.store, token_of(message), queue, fence_above(NO_EXPIRED_GENERATION))
    assert await _extend(setup.store, token_of(message), queue, fence_above(NO_EXPIRED_GENERATION))
    assert not await _release(setup.store, token_of(message), queue, fence_above(0))
    assert await _release(setup.store, token_of(message), queue, fence_above(1))


async def only_locks_that_ran_out_are_swept(setup: StoreSetup) -> None:
    queue = await setup.queue()
    living = token_of(await setup.lock(queue))
    assert living not in [held.token for held in await setup.store.expired_locks(1000)]


async def a_repeated_receive_answers_only_locks_that_live(setup: StoreSetup) -> None:
    queue = await setup.queue()
    await setup.send(queue)
    attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)
    first = await setup.store.claim_once(Claim(queue.id, 1, MINUTE), attempt)
    assert len(first.result) == 1
    await setup.pass_time(MINUTE + SECOND)
    assert (await setup.store.claim_once(Claim(queue.id, 1, MINUTE), attempt)).result == []


async def a_message_of_another_queue_is_not_seen(setup: StoreSetup) -> None:
    number = await setup.send(await setup.queue())
    other = await setup.queue()
    assert await setup.store.read(other.id, number) is None


# ---- receiving -------------------------------------------------------------------------------------------------------


async def what_is_scheduled_is_not_received(setup: StoreSetup) -> None:
    queue = await setup.queue()
    later = await setup.send(queue, delay=MINUTE)
    await setup.store.promote(1000)
    message = await setup.store.read(queue.id, later)
    assert message is not None
    assert message.state is MessageState.SCHEDULED
    assert await setup.store.claim(Claim(queue.id, 1, MINUTE)) == []
    assert await setup.store.claim_by_number(Claim(queue.id, 1, MINUTE), [later]) == []


async def what_is_past_its_life_is_not_received(setup: StoreSetup) -> None:
    queue = await setup.queue()
    number = await setup.send(queue, ttl=SECOND)
    await setup.pass_time(MINUTE)
    assert await setup.store.claim(Claim(queue.id, 1, MINUTE)) == []
    assert await setup.store.claim_by_number(Claim(queue.id, 1, MINUTE), [number]) == []


async def numbers_are_received_from_their_queue_and_state_alone(setup: StoreSetup) -> None:
    queue, other = await setup.queue(), await setup.queue()
    number = await setup.send(queue)
    assert await setup.store.claim_by_number(Claim(other.id, 1, MINUTE), [number]) == []
    deferred = Claim(queue.id, 1, MINUTE, source=MessageState.DEFERRED)
    assert await setup.store.claim_by_number(deferred, [number]) == []


async def a_message_id_may_come_again_after_its_window(setup: StoreSetup) -> None:
    queue = await setup.queue()
    draft = Draft(queue.id, Envelope("twice"), b"{}", BodyKind.JSON, duplicate_window=MINUTE)
    for duplicate in (False, True):
        (receipt,) = await setup.store.send([draft])
        assert receipt.duplicate is duplicate
    await setup.pass_time(MINUTE + SECOND)
    (receipt,) = await setup.store.send([draft])
    assert not receipt.duplicate


async def a_forgotten_attempt_may_be_repeated(setup: StoreSetup) -> None:
    queue = await setup.queue()
    attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), MINUTE)
    draft = Draft(queue.id, Envelope("again"), b"{}", BodyKind.JSON)
    for replayed in (False, True):
        assert (await setup.store.send_once([draft], attempt)).replayed is replayed
    await setup.pass_time(MINUTE + SECOND)
    assert not (await setup.store.send_once([draft], attempt)).replayed


# ---- unlocked messages -----------------------------------------------------------------------------------------------


async def _each_refused(setup: StoreSetup, row: UnlockedRow) -> None:
    """Every act on an unlocked message has no effect where the row is not as it was seen."""
    withdrawal = Withdrawal(row, "any", Outcome.PURGED, HOUR)
    assert await setup.store.withdraw([withdrawal]) == [False]
    assert await setup.store.expire([withdrawal]) == [False]
    assert await setup.store.dead_letter([row], "reason") == [False]
    if row.state is MessageState.DEAD_LETTERED:
        assert await setup.store.redrive([Redrive(row, row.queue_id)]) == [False]


async def _overdue(setup: StoreSetup, queue: Queue) -> int:
    """A message of the queue past its time to live; its number."""
    number = await setup.send(queue, ttl=SECOND)
    await setup.pass_time(MINUTE)
    return number


async def acts_on_a_message_name_its_queue(setup: StoreSetup) -> None:
    number = await _overdue(setup, await setup.queue())
    await _each_refused(setup, UnlockedRow(number, (await setup.queue()).id, MessageState.AVAILABLE))


async def acts_on_a_message_find_it_as_it_was_seen(setup: StoreSetup) -> None:
    queue = await setup.queue()
    number = await _overdue(setup, queue)
    for state in (MessageState.SCHEDULED, MessageState.DEFERRED, MessageState.DEAD_LETTERED):
        await _each_refused(setup, UnlockedRow(number, queue.id, state))


async def acts_on_a_message_leave_a_locked_one_alone(setup: StoreSetup) -> None:
    queue = await setup.queue()
    message = await setup.lock(queue, ttl=MINUTE)
    await setup.pass_time(HOUR)
    await _each_refused(setup, UnlockedRow(message.sequence_number, queue.id, MessageState.LOCKED))
    seen = await setup.reload(message)
    assert seen.state is MessageState.LOCKED
    assert await setup.store.edit(Edit(seen, priority=9)) is None


async def an_edit_finds_the_message_as_it_was_seen(setup: StoreSetup) -> None:
    queue, other = await setup.queue(), await setup.queue()
    seen = await setup.store.read(queue.id, await setup.send(queue))
    assert seen is not None
    for wrong in (
        replace(seen, queue_id=other.id),
        replace(seen, state=MessageState.DEFERRED),
        replace(seen, priority=seen.priority + 1),
        replace(seen, available_at=seen.available_at + 1),
        replace(seen, delivery_count=seen.delivery_count + 1),
        replace(seen, failure_count=seen.failure_count + 1),
        replace(seen, lock_generation=seen.lock_generation + 1),
        replace(seen, envelope=replace(seen.envelope, properties=b'{"b": 1}')),
    ):
        assert await setup.store.edit(Edit(wrong, properties=b'{"a": 1}')) is None
        assert (await setup.reload(seen)).envelope.properties == b""


async def a_message_within_its_life_is_not_overdue(setup: StoreSetup) -> None:
    queue = await setup.queue()
    number = await setup.send(queue, ttl=HOUR)
    assert number not in [row.sequence_number for row in await setup.store.expired_messages(1000)]
    row = UnlockedRow(number, queue.id, MessageState.AVAILABLE)
    assert await setup.store.expire([Withdrawal(row, queue.name, Outcome.EXPIRED, HOUR)]) == [False]
    assert await setup.store.dead_letter([row], "reason") == [False]


# ---- the archive -----------------------------------------------------------------------------------------------------


async def _archive(setup: StoreSetup, retention: Duration) -> None:
    """A message of its own that has ended."""
    queue = await setup.queue()
    token = token_of(await setup.lock(queue))
    removal = Removal(token, queue.id, queue.name, Outcome.COMPLETED, retention, NEVER_RENEWED)
    assert await setup.store.remove([removal]) == [True]


async def _seal(setup: StoreSetup) -> ArchiveBatch:
    """Seal what is not to be removed yet."""
    first = await setup.store.archive.first_unsealed(await setup.store.now())
    assert first is not None
    batch = await setup.store.archive.seal(first)
    assert batch is not None
    return batch


async def a_message_is_sealed_once(setup: StoreSetup) -> None:
    await setup.pass_time(HOUR)  # away from what earlier scenarios have archived
    await _archive(setup, HOUR)
    assert (await _seal(setup)).row_count == 1
    await _archive(setup, HOUR - SECOND)
    assert (await _seal(setup)).row_count == 1


async def a_batch_goes_when_it_may_and_once(setup: StoreSetup) -> None:
    await setup.pass_time(HOUR)
    await _archive(setup, HOUR)
    batch = await _seal(setup)
    for passing, removal in ((MINUTE, None), (HOUR, RemovalCause.EXPIRED), (HOUR, RemovalCause.EXPIRED)):
        before = await _batch(setup, batch.number)
        await setup.pass_time(passing)
        await setup.store.archive.delete_expired(20)
        after = await _batch(setup, batch.number)
        assert after.removal is removal
        assert before.removed_at is None or after.removed_at == before.removed_at - passing


async def _batch(setup: StoreSetup, number: int) -> ArchiveBatch:
    (batch,) = await setup.store.archive.list_batches(number - 1, 1)
    return batch


# ---- queues ----------------------------------------------------------------------------------------------------------


async def a_queue_is_changed_only_as_it_was_seen(setup: StoreSetup) -> None:
    seen = await setup.queue()
    assert await setup.store.queues.change(seen, QueueSettings(max_delivery_count=3)) is not None
    assert await setup.store.queues.change(seen, QueueSettings(max_delivery_count=4)) is None
    assert not await setup.store.queues.delete(seen)


Scenario = Callable[[StoreSetup], Awaitable[None]]

SCENARIOS: Sequence[Scenario] = (
    a_foreign_token_has_no_effect,
    another_queue_has_no_effect,
    a_token_on_an_unlocked_row_has_no_effect,
    a_lock_that_ran_out_cannot_be_used,
    a_renewed_lock_needs_a_second_check,
    a_generation_that_has_expired_cannot_be_used,
    a_lock_to_be_revoked_is_not_prolonged,
    a_living_lock_is_not_released,
    only_locks_that_ran_out_are_swept,
    a_repeated_receive_answers_only_locks_that_live,
    a_message_of_another_queue_is_not_seen,
    what_is_scheduled_is_not_received,
    what_is_past_its_life_is_not_received,
    numbers_are_received_from_their_queue_and_state_alone,
    a_message_id_may_come_again_after_its_window,
    a_forgotten_attempt_may_be_repeated,
    acts_on_a_message_name_its_queue,
    acts_on_a_message_find_it_as_it_was_seen,
    acts_on_a_message_leave_a_locked_one_alone,
    an_edit_finds_the_message_as_it_was_seen,
    a_message_within_its_life_is_not_overdue,
    a_message_is_sealed_once,
    a_batch_goes_when_it_may_and_once,
    a_queue_is_changed_only_as_it_was_seen,
)
