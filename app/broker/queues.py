"""Queues: made, changed and removed, on the condition that their author sets.

A change that a lock's holder relied on (see `ends_locks`) takes the locks: their messages return
uncounted and the holders hear `lock-lost` with the cause `entity_changed` (S3.33).

Crash window: a change whose author dies after the commit is remembered with the queue until all of
its locks are taken; the sweeper of any process takes those that are left.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.broker.announce import announce_moved, announce_open
from app.broker.broker import Broker
from app.domain.queue import Queue, QueueCounts, QueueSettings, ends_locks, is_open_to_receivers
from app.domain.refusals import PreconditionFailed, QueueNotFound, StoreUnavailable
from app.domain.settlement import ANY_LOCK, HIGHEST_GENERATION, Held, Move, Outcome

BATCH_SIZE = 500
"""Locks taken per statement when settings change."""

MOST_TAKINGS = 100
"""Queues whose locks are taken in one go; the others follow as soon as these are done."""

MOST_TRIES = 100
"""Times a change is made anew because another came between: each time somebody else's took effect."""

CROWDED = "Too many concurrent changes to this queue; this request changed nothing."

Change: TypeAlias = Callable[[QueueSettings], QueueSettings]


@dataclass(frozen=True, slots=True)
class Condition:
    """What must be true of a queue's edition when it changes: one of `wanted` (None: any), none of `unwanted`."""

    wanted: Container[str] | None = None
    unwanted: Container[str] = ()

    def check(self, queue: Queue) -> None:
        """Refuse with `PreconditionFailed` where it does not hold."""
        if self.wanted is not None and queue.edition not in self.wanted:
            raise PreconditionFailed(
                f'Queue {queue.name} was changed or made again: its ETag is now "{queue.edition}", in quotes.'
            )
        if queue.edition in self.unwanted:
            raise PreconditionFailed(
                f'There is a queue named {queue.name} already: its ETag is now "{queue.edition}", in quotes.'
            )


UNCONDITIONAL = Condition()


@dataclass(frozen=True, slots=True)
class Listed:
    """A queue with its counts as they were a moment ago."""

    queue: Queue
    counts: QueueCounts


async def put_queue(
    broker: Broker, name: str, settings: QueueSettings, condition: Condition = UNCONDITIONAL
) -> tuple[Queue, bool]:
    """Make the queue, or give it these settings; whether it was made.

    Equal settings change nothing. Refuses with `PreconditionFailed` where the condition does not hold.
    """
    if condition.wanted is None:
        queue, made = await broker.catalogue.create(name, settings)
        if made:
            return queue, True
    elif (queue := await broker.store.queues.find(name)) is None:
        raise PreconditionFailed(f"There is no queue named {name}.")
    try:
        return await change_queue(broker, queue, lambda _: settings, condition), False
    except QueueNotFound:
        # Removed meanwhile, so what was to be changed is now to be made, or missed.
        return await put_queue(broker, name, settings, condition)


async def change_queue(broker: Broker, queue: Queue, change: Change, condition: Condition = UNCONDITIONAL) -> Queue:
    """Give the queue the settings that `change` makes of its own.

    When others change it at the same time, theirs are taken in and the change is made of what they left. Refuses with
    `PreconditionFailed` where the condition does not hold, or no longer; a queue removed meanwhile with
    `QueueNotFound`.
    """
    for _ in range(MOST_TRIES):
        condition.check(queue)
        settings = change(queue.settings)
        if settings == queue.settings:
            return queue
        changed = await broker.store.queues.change(queue, settings)
        broker.catalogue.forget(queue)
        if changed is not None:
            broker.bells.queues_changed()
            if is_open_to_receivers(settings) and not is_open_to_receivers(queue.settings):
                await _open_again(broker, changed)
            if ends_locks(queue.settings, settings):
                while await take_locks(broker):
                    pass
            return changed
        queue = await fresh(broker, queue.name)
    raise StoreUnavailable(CROWDED)


async def delete_queue(broker: Broker, queue: Queue, condition: Condition = UNCONDITIONAL) -> None:
    """Remove the queue. What it holds goes to the archive as purged. Refuses as `change_queue` does.

    Crash window: the messages of a queue that is gone are found by a pass of any process.
    """
    for _ in range(MOST_TRIES):
        condition.check(queue)
        deleted = await broker.store.queues.delete(queue)
        broker.catalogue.forget(queue)
        if deleted:
            broker.bells.queues_changed()
            return
        queue = await fresh(broker, queue.name)
    raise StoreUnavailable(CROWDED)


async def show_queue(broker: Broker, name: str) -> Listed:
    """The queue as it stands in the store, with its counts. Refuses with `QueueNotFound`."""
    queue = await fresh(broker, name)
    return Listed(queue, (await broker.store.queues.counts([queue.id]))[queue.id])


async def list_queues(broker: Broker, after: str, most: int) -> list[Listed]:
    """Queues by name, with their counts."""
    queues = await broker.store.queues.page(after, most)
    counts = await broker.store.queues.counts([queue.id for queue in queues])
    return [Listed(queue, counts[queue.id]) for queue in queues]


async def fresh(broker: Broker, name: str) -> Queue:
    """The queue as it stands in the store, not as remembered: for whoever is about to change it."""
    queue = await broker.store.queues.find(name)
    if queue is None:
        raise broker.catalogue.missing(name)
    return queue


async def take_locks(broker: Broker) -> int:
    """Revoke up to BATCH_SIZE locks of each queue whose settings changed; returns how many.

    What was locked after the change keeps its lock. A row that another request holds is left for the next pass.
    """
    taken = 0
    for taking in await broker.store.queues.takings(MOST_TAKINGS):
        held = await broker.store.locks_of_queue(taking.queue_id, taking.given_until, BATCH_SIZE)
        if held:
            taken += await _revoke(broker, held)
        else:
            await broker.store.queues.end_taking(taking)
    return taken


async def _revoke(broker: Broker, held: Sequence[Held]) -> int:
    """Revoke these locks; returns how many were still held."""
    moves = [Move(one.token, one.queue_id, Outcome.ENTITY_CHANGED, one.home_state, fence=ANY_LOCK) for one in held]
    moved = await broker.store.move(moves)
    # A record left behind would let its holder renew a lock that is gone.
    await broker.locks.drop([(one.token, HIGHEST_GENERATION) for one in held])
    broker.tally.count("locks_taken", sum(moved))
    announce_moved(broker, moves, moved)
    return sum(moved)


async def _open_again(broker: Broker, queue: Queue) -> None:
    """Wake receivers that have waited since before the queue was closed to them."""
    counts = (await broker.store.queues.counts([queue.id]))[queue.id]
    announce_open(broker, queue.id, counts.available, counts.dead_lettered)
