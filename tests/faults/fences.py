"""Each condition that guards a row, tried from the wrong side: scenarios that pass only while every fence stands."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from app.broker.ports import Attempt, Edit, Extension, Redrive, Store, Unlocked, Withdrawal
from app.domain.archive import ArchiveBatch, RemovalCause
from app.domain.delivery import Claim
from app.domain.instant import HOUR, MINUTE, SECOND, Duration
from app.domain.message import BodyKind, Draft, Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import NEVER_RENEWED, NO_EVIDENCE, Fence, LockToken, Move, Outcome, Removal, cleared
from tests.faults.scene import Scene, token_of


@dataclass(frozen=True, slots=True)
class Ending:
    """A verb that ends or prolongs a delivery: whether it took effect, asked with this token, queue and fence."""

    name: str
    ask: Callable[[Store, LockToken, Queue, Fence], Awaitable[bool]]

    def __str__(self) -> str:
        return self.name


async def _remove(store: Store, token: LockToken, queue: Queue, fence: Fence) -> bool:
    (took,) = await store.remove([Removal(token, queue.id, queue.name, Outcome.COMPLETED, HOUR, fence)])
    return took


async def _move(store: Store, token: LockToken, queue: Queue, fence: Fence) -> bool:
    (took,) = await store.move([_back(token, queue, Outcome.ABANDONED, fence)])
    return took


async def _extend(store: Store, token: LockToken, queue: Queue, fence: Fence) -> bool:
    (extended,) = await store.extend([Extension(token, queue.id, MINUTE, fence.above)])
    return extended is not None


async def _release(store: Store, token: LockToken, queue: Queue, fence: Fence) -> bool:
    (took,) = await store.release([_back(token, queue, Outcome.LOCK_EXPIRED, fence)])
    return took


def _back(token: LockToken, queue: Queue, outcome: Outcome, fence: Fence) -> Move:
    return Move(token, queue.id, outcome, MessageState.AVAILABLE, fence=fence)


REMOVE, MOVE = Ending("remove", _remove), Ending("move", _move)
EXTEND, RELEASE = Ending("extend", _extend), Ending("release", _release)

HOLDERS = (REMOVE, MOVE, EXTEND)
"""What the holder of a lock asks while it lives."""


@asynccontextmanager
async def _under_lock(scene: Scene, ending: Ending) -> AsyncIterator[tuple[Queue, Message, LockToken]]:
    """A locked message on which the verb would take effect; afterwards it must be as it was."""
    queue = await scene.queue()
    message = await scene.lock(queue)
    if ending is RELEASE:
        await scene.let_pass(HOUR)
    before = replace(await scene.seen(message), read_at=0)
    yield queue, message, token_of(message)
    after = await scene.store.read(queue.id, message.sequence_number)
    assert after is not None
    assert replace(after, read_at=0) == before


# ---- deliveries ------------------------------------------------------------------------------------------------------


async def a_foreign_token_has_no_effect(scene: Scene) -> None:
    for ending in (*HOLDERS, RELEASE):
        async with _under_lock(scene, ending) as (queue, _, token):
            foreign = replace(token, secret=secrets.token_bytes(16))
            assert not await ending.ask(scene.store, foreign, queue, NEVER_RENEWED), ending


async def another_queue_has_no_effect(scene: Scene) -> None:
    other = await scene.queue()
    for ending in (*HOLDERS, RELEASE):
        async with _under_lock(scene, ending) as (_, _, token):
            assert not await ending.ask(scene.store, token, other, NEVER_RENEWED), ending


async def a_token_on_an_unlocked_row_has_no_effect(scene: Scene) -> None:
    for ending in (*HOLDERS, RELEASE):
        queue = await scene.queue()
        message = await scene.lock(queue)
        if ending is RELEASE:
            await scene.let_pass(HOUR)
        await scene.put(message, MessageState.DEFERRED)
        assert not await ending.ask(scene.store, token_of(message), queue, NEVER_RENEWED), ending
        assert (await scene.seen(message)).state is MessageState.DEFERRED, ending


async def a_lock_that_ran_out_cannot_be_used(scene: Scene) -> None:
    for ending in HOLDERS:
        queue = await scene.queue()
        message = await scene.lock(queue)
        await scene.let_pass(MINUTE + SECOND)
        assert not await ending.ask(scene.store, token_of(message), queue, NEVER_RENEWED), ending
        assert (await scene.seen(message)).state is MessageState.LOCKED, ending


async def a_renewed_lock_asks_for_a_second_look(scene: Scene) -> None:
    for ending in (REMOVE, MOVE):
        queue = await scene.queue()
        message = await scene.lock(queue)
        assert await _extend(scene.store, token_of(message), queue, cleared(NO_EVIDENCE))
        assert not await ending.ask(scene.store, token_of(message), queue, NEVER_RENEWED), ending
        assert await ending.ask(scene.store, token_of(message), queue, cleared(NO_EVIDENCE)), ending


async def a_generation_that_has_expired_cannot_be_used(scene: Scene) -> None:
    for ending in HOLDERS:
        queue = await scene.queue()
        message = await scene.lock(queue)
        assert await _extend(scene.store, token_of(message), queue, cleared(NO_EVIDENCE))
        assert not await ending.ask(scene.store, token_of(message), queue, cleared(1)), ending
        assert await ending.ask(scene.store, token_of(message), queue, cleared(0)), ending


async def a_lock_that_a_change_is_to_take_is_not_prolonged(scene: Scene) -> None:
    queue = await scene.queue()
    message = await scene.lock(queue)
    assert await scene.store.queues.change(queue, QueueSettings(max_delivery_count=3)) is not None
    assert not await _extend(scene.store, token_of(message), queue, cleared(NO_EVIDENCE))
    later = await scene.lock(queue)
    assert await _extend(scene.store, token_of(later), queue, cleared(NO_EVIDENCE))


async def a_living_lock_is_not_released(scene: Scene) -> None:
    queue = await scene.queue()
    message = await scene.lock(queue)
    assert not await _release(scene.store, token_of(message), queue, cleared(NO_EVIDENCE))
    assert await _extend(scene.store, token_of(message), queue, cleared(NO_EVIDENCE))
    assert not await _release(scene.store, token_of(message), queue, cleared(0))
    assert await _release(scene.store, token_of(message), queue, cleared(1))


async def only_locks_that_ran_out_are_swept(scene: Scene) -> None:
    queue = await scene.queue()
    living = token_of(await scene.lock(queue))
    assert living not in [held.token for held in await scene.store.ended_locks(1000)]


async def a_repeated_receive_answers_only_locks_that_live(scene: Scene) -> None:
    queue = await scene.queue()
    await scene.send(queue)
    attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)
    first = await scene.store.claim_once(Claim(queue.id, 1, MINUTE), attempt)
    assert len(first.answer) == 1
    await scene.let_pass(MINUTE + SECOND)
    assert (await scene.store.claim_once(Claim(queue.id, 1, MINUTE), attempt)).answer == []


async def a_message_of_another_queue_is_not_seen(scene: Scene) -> None:
    number = await scene.send(await scene.queue())
    other = await scene.queue()
    assert await scene.store.read(other.id, number) is None


# ---- receiving -------------------------------------------------------------------------------------------------------


async def what_is_scheduled_is_not_received(scene: Scene) -> None:
    queue = await scene.queue()
    later = await scene.send(queue, delay=MINUTE)
    await scene.store.awaken(1000)
    message = await scene.store.read(queue.id, later)
    assert message is not None
    assert message.state is MessageState.SCHEDULED
    assert await scene.store.claim(Claim(queue.id, 1, MINUTE)) == []
    assert await scene.store.claim_these(Claim(queue.id, 1, MINUTE), [later]) == []


async def what_is_past_its_life_is_not_received(scene: Scene) -> None:
    queue = await scene.queue()
    number = await scene.send(queue, ttl=SECOND)
    await scene.let_pass(MINUTE)
    assert await scene.store.claim(Claim(queue.id, 1, MINUTE)) == []
    assert await scene.store.claim_these(Claim(queue.id, 1, MINUTE), [number]) == []


async def numbers_are_received_from_their_queue_and_state_alone(scene: Scene) -> None:
    queue, other = await scene.queue(), await scene.queue()
    number = await scene.send(queue)
    assert await scene.store.claim_these(Claim(other.id, 1, MINUTE), [number]) == []
    deferred = Claim(queue.id, 1, MINUTE, source=MessageState.DEFERRED)
    assert await scene.store.claim_these(deferred, [number]) == []


async def a_message_id_may_come_again_after_its_window(scene: Scene) -> None:
    queue = await scene.queue()
    draft = Draft(queue.id, Envelope("twice"), b"{}", BodyKind.JSON, duplicate_window=MINUTE)
    for duplicate in (False, True):
        (receipt,) = await scene.store.send([draft])
        assert receipt.duplicate is duplicate
    await scene.let_pass(MINUTE + SECOND)
    (receipt,) = await scene.store.send([draft])
    assert not receipt.duplicate


async def an_attempt_may_be_made_anew_when_it_is_forgotten(scene: Scene) -> None:
    queue = await scene.queue()
    attempt = Attempt(secrets.token_bytes(32), secrets.token_bytes(32), MINUTE)
    draft = Draft(queue.id, Envelope("again"), b"{}", BodyKind.JSON)
    for replayed in (False, True):
        assert (await scene.store.send_once([draft], attempt)).replayed is replayed
    await scene.let_pass(MINUTE + SECOND)
    assert not (await scene.store.send_once([draft], attempt)).replayed


# ---- unlocked messages -----------------------------------------------------------------------------------------------


async def _each_refused(scene: Scene, row: Unlocked) -> None:
    """Every act on an unlocked message has no effect where the row is not as it was seen."""
    withdrawal = Withdrawal(row, "any", Outcome.PURGED, HOUR)
    assert await scene.store.withdraw([withdrawal]) == [False]
    assert await scene.store.expire([withdrawal]) == [False]
    assert await scene.store.bury([row], "reason") == [False]
    if row.state is MessageState.DEAD_LETTERED:
        assert await scene.store.redrive([Redrive(row, row.queue_id)]) == [False]


async def _overdue(scene: Scene, queue: Queue) -> int:
    """A message of the queue past its time to live; its number."""
    number = await scene.send(queue, ttl=SECOND)
    await scene.let_pass(MINUTE)
    return number


async def acts_on_a_message_name_its_queue(scene: Scene) -> None:
    number = await _overdue(scene, await scene.queue())
    await _each_refused(scene, Unlocked(number, (await scene.queue()).id, MessageState.AVAILABLE))


async def acts_on_a_message_find_it_as_it_was_seen(scene: Scene) -> None:
    queue = await scene.queue()
    number = await _overdue(scene, queue)
    for state in (MessageState.SCHEDULED, MessageState.DEFERRED, MessageState.DEAD_LETTERED):
        await _each_refused(scene, Unlocked(number, queue.id, state))


async def acts_on_a_message_leave_a_locked_one_alone(scene: Scene) -> None:
    queue = await scene.queue()
    message = await scene.lock(queue, ttl=MINUTE)
    await scene.let_pass(HOUR)
    await _each_refused(scene, Unlocked(message.sequence_number, queue.id, MessageState.LOCKED))
    seen = await scene.seen(message)
    assert seen.state is MessageState.LOCKED
    assert await scene.store.edit(Edit(seen, priority=9)) is None


async def an_edit_finds_the_message_as_it_was_seen(scene: Scene) -> None:
    queue, other = await scene.queue(), await scene.queue()
    seen = await scene.store.read(queue.id, await scene.send(queue))
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
        assert await scene.store.edit(Edit(wrong, properties=b'{"a": 1}')) is None
        assert (await scene.seen(seen)).envelope.properties == b""


async def a_message_within_its_life_is_not_overdue(scene: Scene) -> None:
    queue = await scene.queue()
    number = await scene.send(queue, ttl=HOUR)
    assert number not in [row.sequence_number for row in await scene.store.overdue(1000)]
    row = Unlocked(number, queue.id, MessageState.AVAILABLE)
    assert await scene.store.expire([Withdrawal(row, queue.name, Outcome.EXPIRED, HOUR)]) == [False]
    assert await scene.store.bury([row], "reason") == [False]


# ---- the archive -----------------------------------------------------------------------------------------------------


async def _archive(scene: Scene, retention: Duration) -> None:
    """A message of its own that has ended."""
    queue = await scene.queue()
    token = token_of(await scene.lock(queue))
    removal = Removal(token, queue.id, queue.name, Outcome.COMPLETED, retention, NEVER_RENEWED)
    assert await scene.store.remove([removal]) == [True]


async def _seal(scene: Scene) -> ArchiveBatch:
    """Seal what is not to be removed yet."""
    first = await scene.store.archive.first_unsealed(await scene.store.now())
    assert first is not None
    batch = await scene.store.archive.seal(first)
    assert batch is not None
    return batch


async def a_message_is_sealed_once(scene: Scene) -> None:
    await scene.let_pass(HOUR)  # away from what earlier scenarios have archived
    await _archive(scene, HOUR)
    assert (await _seal(scene)).row_count == 1
    await _archive(scene, HOUR - SECOND)
    assert (await _seal(scene)).row_count == 1


async def a_batch_goes_when_it_may_and_once(scene: Scene) -> None:
    await scene.let_pass(HOUR)
    await _archive(scene, HOUR)
    batch = await _seal(scene)
    for passing, removal in ((MINUTE, None), (HOUR, RemovalCause.EXPIRED), (HOUR, RemovalCause.EXPIRED)):
        before = await _batch(scene, batch.number)
        await scene.let_pass(passing)
        await scene.store.archive.forget(20)
        after = await _batch(scene, batch.number)
        assert after.removal is removal
        assert before.removed_at is None or after.removed_at == before.removed_at - passing


async def _batch(scene: Scene, number: int) -> ArchiveBatch:
    (batch,) = await scene.store.archive.batches(number - 1, 1)
    return batch


# ---- queues ----------------------------------------------------------------------------------------------------------


async def a_queue_is_changed_only_as_it_was_seen(scene: Scene) -> None:
    seen = await scene.queue()
    assert await scene.store.queues.change(seen, QueueSettings(max_delivery_count=3)) is not None
    assert await scene.store.queues.change(seen, QueueSettings(max_delivery_count=4)) is None
    assert not await scene.store.queues.delete(seen)


Scenario = Callable[[Scene], Awaitable[None]]

SCENARIOS: Sequence[Scenario] = (
    a_foreign_token_has_no_effect,
    another_queue_has_no_effect,
    a_token_on_an_unlocked_row_has_no_effect,
    a_lock_that_ran_out_cannot_be_used,
    a_renewed_lock_asks_for_a_second_look,
    a_generation_that_has_expired_cannot_be_used,
    a_lock_that_a_change_is_to_take_is_not_prolonged,
    a_living_lock_is_not_released,
    only_locks_that_ran_out_are_swept,
    a_repeated_receive_answers_only_locks_that_live,
    a_message_of_another_queue_is_not_seen,
    what_is_scheduled_is_not_received,
    what_is_past_its_life_is_not_received,
    numbers_are_received_from_their_queue_and_state_alone,
    a_message_id_may_come_again_after_its_window,
    an_attempt_may_be_made_anew_when_it_is_forgotten,
    acts_on_a_message_name_its_queue,
    acts_on_a_message_find_it_as_it_was_seen,
    acts_on_a_message_leave_a_locked_one_alone,
    an_edit_finds_the_message_as_it_was_seen,
    a_message_within_its_life_is_not_overdue,
    a_message_is_sealed_once,
    a_batch_goes_when_it_may_and_once,
    a_queue_is_changed_only_as_it_was_seen,
)
