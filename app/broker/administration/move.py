"""Move: a background task moves the messages of a queue to another one, or dead letters back to where they came from.

The record of a task is in the database, and `move_page` moves its pages. So another server continues a task when one stops.
"""

from app.broker.administration.ports import AdministrationPorts
from app.broker.ports.sending import QueueGone
from app.broker.sending.target_queue import last_queue
from app.domain.move_task import (
    MOVABLE_STATES,
    MoveEnded,
    MoveNotFound,
    MoveRequest,
    MoveState,
    MoveTask,
    check_targets,
    movable_states,
)
from app.domain.queue import Queue, QueueCounts
from app.domain.refusals import invalid_at


async def find_targets(ports: AdministrationPorts, queue: Queue, to_queue: Queue | None) -> list[Queue]:
    """Return the queues to which a move of this queue sends messages: the named one, or without one the `home_queues`.

    Refuses as `check_targets` does, and as a send does if the named queue accepts no messages.
    """
    if to_queue is None:
        targets = await home_queues(ports, queue)
    else:
        targets = [to_queue]
        if (await last_queue(ports.queue_cache, to_queue)).id == queue.id != to_queue.id:
            raise invalid_at("/to_queue", f"Queue {to_queue.name} forwards messages to queue {queue.name}.")
    check_targets(queue, to_queue and to_queue.name, targets)
    return targets


async def home_queues(ports: AdministrationPorts, queue: Queue) -> list[Queue]:
    """Return the queues that forward their dead letters to this one, and this one last if it holds dead letters of its own."""
    sources = await ports.store.queues.dead_letter_sources(queue.name)
    return [*sources, queue] if (await _counts(ports, queue)).dead_lettered else [*sources]


async def start_move(ports: AdministrationPorts, queue: Queue, request: MoveRequest) -> MoveTask:
    """Start a task that moves the messages that the queue has now. Refuses with `MoveRunning` and `QueueNotFound`."""
    counts = await _counts(ports, queue)
    found = counts.dead_lettered
    if movable_states(queue, request) is MOVABLE_STATES:
        found += counts.available + counts.blocked
    try:
        return await ports.store.moves.start(ports.transactions.sending.new_id(), queue, request, found)
    except QueueGone:
        ports.queue_cache.forget(queue)
        raise ports.queue_cache.not_found(queue.name) from None


async def list_moves(ports: AdministrationPorts, queue: Queue) -> list[MoveTask]:
    """Return the last tasks of the queue, the newest first."""
    return await ports.store.moves.of_queue(queue.id)


async def read_move(ports: AdministrationPorts, queue: Queue, task_id: str) -> MoveTask:
    """Return a task of the queue. Refuses with `MoveNotFound`."""
    task = await ports.store.moves.find(queue.id, task_id)
    if task is None:
        raise MoveNotFound
    return task


async def cancel_move(ports: AdministrationPorts, queue: Queue, task_id: str) -> MoveTask:
    """End a running task. What has moved stays moved. A repeat returns the cancelled task.

    Refuses with `MoveNotFound`, and with `MoveEnded` a task that was completed or has failed.
    """
    is_cancelled = await ports.store.moves.cancel(queue.id, task_id)
    task = await read_move(ports, queue, task_id)
    if not is_cancelled and task.state is not MoveState.CANCELLED:
        raise MoveEnded
    return task


async def _counts(ports: AdministrationPorts, queue: Queue) -> QueueCounts:
    return (await ports.store.queues.counts([queue.id]))[queue.id]
