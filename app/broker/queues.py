"""Queues: made, changed and removed, each change guarded by the version its author saw.

A change that a lock's holder relied on (see `ends_locks`) takes the locks: their messages return
uncounted and the holders hear `lock-lost` with the cause `entity_changed` (S3.33).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.broker.broker import Broker
from app.domain.queue import Queue, QueueCounts, QueueSettings, ends_locks
from app.domain.refusals import PreconditionFailed
from app.domain.settlement import Held, Move, Outcome

BITE = 500
"""Locks taken per statement when settings change."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A queue with its counts as they were a moment ago."""

    queue: Queue
    counts: QueueCounts


async def put_queue(
    broker: Broker, name: str, settings: QueueSettings, expected: int | None = None
) -> tuple[Queue, bool]:
    """Make the queue, or give it these settings; whether it was made.

    Equal settings change nothing. Refuses with `PreconditionFailed` when the queue is no longer at
    version `expected`.
    """
    if expected is not None:
        seen = await broker.store.queues.find(name)
        if seen is None:
            raise PreconditionFailed(f"There is no queue named {name}, at whatever version.")
        return await change_queue(broker, seen, settings, expected), False
    queue, made = await broker.store.queues.create(name, settings)
    if made:
        broker.catalogue.forget(queue)
        return queue, True
    return await change_queue(broker, queue, settings), False


async def change_queue(broker: Broker, queue: Queue, settings: QueueSettings, expected: int | None = None) -> Queue:
    """Give the queue these settings. Refuses with `PreconditionFailed` as `put_queue` does."""
    _guard(queue, expected)
    if settings == queue.settings:
        return queue
    changed = await broker.store.queues.change(queue, settings)
    if changed is None:
        broker.catalogue.forget(queue)
        raise PreconditionFailed(f"Queue {queue.name} was changed at the same time.")
    broker.catalogue.forget(queue)
    broker.bells.queue_changed(queue.id)
    if ends_locks(queue.settings, settings):
        await _take_locks(broker, changed)
    return changed


async def delete_queue(broker: Broker, queue: Queue, expected: int | None = None) -> None:
    """Remove the queue with all it holds. Refuses with `PreconditionFailed` as `put_queue` does."""
    _guard(queue, expected)
    if not await broker.store.queues.delete(queue):
        raise PreconditionFailed(f"Queue {queue.name} was changed at the same time.")
    broker.catalogue.forget(queue)
    broker.bells.queue_changed(queue.id)


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
        return await broker.catalogue.named(name)
    return queue


def _guard(queue: Queue, expected: int | None) -> None:
    if expected is not None and queue.version != expected:
        raise PreconditionFailed(f"Queue {queue.name} is at version {queue.version}, not {expected}.")


async def _take_locks(broker: Broker, queue: Queue) -> None:
    while held := await broker.store.locks_of_queue(queue.id, BITE):
        taken = await broker.store.revoke(_returned(held))
        # A record left behind would let its holder renew a lock that is gone.
        await broker.locks.drop([one.token for one in held])
        broker.tally.count("locks_taken", sum(taken))
        broker.bells.ring(queue.id, sum(taken))
        if not any(taken):
            # Everything seen was settled meanwhile by its holder.
            return


def _returned(held: Sequence[Held]) -> list[Move]:
    return [Move(one.token, one.queue_id, Outcome.ENTITY_CHANGED, one.home_state) for one in held]
