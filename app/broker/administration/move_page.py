"""Move a page: one step of a move task, which any server may take.

One transaction moves the messages and records how far the task has come, unless another server has taken the step. So
each message moves once, and the count is exact.

Crash windows: before the commit nothing of the page has moved, and another server takes the step. After it the wake-up of
receivers may be lost; they also poll.
"""

from collections.abc import Mapping
from itertools import compress

from app.broker.administration.ports import AdministrationPorts
from app.broker.notify_receivers import StateChange
from app.broker.ports.maintaining import MoveStep, Redrive, UnlockedRow
from app.broker.ports.sending import QueueGone
from app.broker.queue_cache import CACHE_SECONDS, QueueCache
from app.broker.sending.target_queue import free_capacity, last_queue
from app.domain.instant import from_seconds
from app.domain.message import MessageMetadata, MessageState
from app.domain.move_task import MoveRequest, MoveState, MoveTask, movable_states, target_names_of
from app.domain.queue import Queue, check_send_enabled
from app.domain.refusals import Conflict, QueueNotFound, Refusal
from app.domain.weight import content_bytes, select_message


async def move_page(ports: AdministrationPorts, task: MoveTask) -> bool:
    """Take the next step of a task; return whether this call has taken it and the task still runs.

    A message that is too large for its target, or whose target is gone or refuses sends, stays. If a target has no room,
    the page ends before its message, and the task waits there. A task whose named target is gone or refuses sends fails.
    """
    try:
        step = await _next_step(ports, task)
        moved = await ports.store.advance_move(step)
    except QueueGone:
        # A target was deleted. The next pass reads the queues again.
        ports.queue_cache.clear()
        return False
    if moved is None:
        return False
    ports.receivers.notify(
        StateChange(redrive.to_queue_id, redrive.row.sequence_number, MessageState.AVAILABLE)
        for redrive in compress(step.redrives, moved)
    )
    ports.counters.count("messages_moved", sum(moved))
    return step.state is MoveState.RUNNING


async def open_targets(queue_cache: QueueCache, source: Queue, request: MoveRequest) -> Mapping[str, Queue]:
    """Return the queues that store what a move of this queue sends, by the name of the queue to which it goes.

    Refuses as a send does if the named target does not accept messages, and with `QueueNotFound` if it was deleted. Other
    targets that do not accept messages are left out. The queue itself does not forward its own dead letters.
    """
    targets: dict[str, Queue] = {}
    for queue_id in request.target_ids:
        try:
            queue = await _existing(queue_cache, queue_id, request)
            targets[queue.name] = await _last(queue_cache, source, queue)
        except Refusal:
            if request.to_queue is not None:
                raise
    return targets


def accepting_target(
    message: MessageMetadata, source: Queue, request: MoveRequest, targets: Mapping[str, Queue]
) -> Queue | None:
    """Return the target that stores this message, None if the message stays. Within its queue, no size is too large."""
    names = target_names_of(message, source, request)
    target = next((targets[name] for name in names if name in targets), None)
    if target is None or target.id == source.id:
        return target
    return target if content_bytes(select_message(message)) <= target.settings.max_message_bytes else None


async def _next_step(ports: AdministrationPorts, task: MoveTask) -> MoveStep:
    if task.read_at - task.started_at <= from_seconds(CACHE_SECONDS):
        # A queue in the cache may be older than the task, and this server may have missed a change of it.
        ports.queue_cache.clear()
    source = await ports.queue_cache.by_id(task.queue_id)
    if source is None:
        return _failed(task, "The queue was deleted.")
    try:
        targets = await open_targets(ports.queue_cache, source, task.request)
    except Refusal as refusal:
        return _failed(task, refusal.detail)
    return await _page(ports, task, source, targets)


async def _page(ports: AdministrationPorts, task: MoveTask, source: Queue, targets: Mapping[str, Queue]) -> MoveStep:
    """Return the step that moves the next messages, as many as their targets have room for."""
    size = task.request.page_size
    read = await ports.store.browse_metadata(source.id, movable_states(source, task.request), task.position, size)
    page = [message for message in read if message.sequence_number <= task.last_number]
    room: dict[int, int] = {}
    position = task.position
    redrives: list[Redrive] = []
    for message in page:
        target = accepting_target(message, source, task.request, targets)
        if target is not None:
            if target.id not in room:
                room[target.id] = await _room(ports, source, target, len(page))
            if not room[target.id]:
                return _up_to_full_target(task, redrives, position, target)
            room[target.id] -= 1
            row = UnlockedRow(message.sequence_number, task.queue_id, message.state)
            redrives.append(Redrive(row, target.id))
        position = message.sequence_number
    state = MoveState.RUNNING if len(page) == size else MoveState.COMPLETED
    return MoveStep(task, redrives, position, state)


def _up_to_full_target(task: MoveTask, redrives: list[Redrive], position: int, target: Queue) -> MoveStep:
    """Return the step that ends before a message for which its target has no room."""
    if position == task.position and task.has_waited_too_long:
        return _failed(task, f"Queue {target.name} has had no room for a day.")
    return MoveStep(task, redrives, position)


async def _existing(queue_cache: QueueCache, queue_id: int, request: MoveRequest) -> Queue:
    queue = await queue_cache.by_id(queue_id)
    if queue is None:
        raise QueueNotFound(f"Queue {request.to_queue} was deleted.")
    return queue


async def _room(ports: AdministrationPorts, source: Queue, target: Queue, count: int) -> int:
    """Return how many of `count` messages a target has room for. Those that stay in their queue need none."""
    return count if target.id == source.id else await free_capacity(ports.store.queues, target, count)


async def _last(queue_cache: QueueCache, source: Queue, queue: Queue) -> Queue:
    if queue.id == source.id:
        check_send_enabled(queue)
        return queue
    last = await last_queue(queue_cache, queue)
    if last.id == source.id:
        raise Conflict(f"Queue {queue.name} forwards messages to queue {source.name}.")
    return last


def _failed(task: MoveTask, reason: str) -> MoveStep:
    return MoveStep(task, (), task.position, MoveState.FAILED, reason)
