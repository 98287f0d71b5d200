"""Tasks that move the messages of a dead-letter queue: start, list and cancel them."""

from typing import Any

from app.broker.administration import move as verbs
from app.domain.access import Right
from app.domain.instant import to_milliseconds
from app.domain.move_task import MoveRequest, MoveState, MoveTask, other_queues
from app.domain.queue import Queue
from app.domain.refusals import InvalidRequest, QueueNotFound
from app.sqs.call import Call
from app.sqs.errors import ResourceNotFound
from app.sqs.queue_names import arn_of, name_of_arn
from app.sqs.shapes import move_tasks as shapes
from app.sqs.task_handles import task_handle, task_of_handle


async def start_message_move_task(call: Call[shapes.StartMessageMoveTask]) -> shapes.StartedTask:
    """Start a task that moves messages to the destination, or without one each back to the queue that dead-lettered it.

    Dead letters that the queue itself holds become available in it. Refuses as `find_targets` and `start_move` do, with
    `ResourceNotFound` a queue that does not exist, with `InvalidRequest` one that has no dead letters and takes none, and
    with `Forbidden` a target to which the client may not send.
    """
    body, ports = call.body, call.broker.administration
    source = await _existing(call, call.queue_name)
    if not await verbs.home_queues(ports, source):
        raise InvalidRequest(f"Queue {source.name} is the dead-letter queue of no queue, and holds no dead letters.")
    destination = None if body.destination_arn is None else await _destination(call, body.destination_arn)
    targets = await verbs.find_targets(ports, source, destination)
    for target in other_queues(source, targets):
        call.authorize(Right.SEND, target.name)
    request = MoveRequest(
        destination and destination.name,
        tuple(target.id for target in targets),
        body.max_number_of_messages_per_second,
    )
    task = await verbs.start_move(ports, source, request)
    return shapes.StartedTask(task_handle=task_handle(source.name, task.id))


async def list_message_move_tasks(call: Call[shapes.ListMessageMoveTasks]) -> shapes.TaskList:
    """List the last tasks of a queue, the newest first. Refuses with `ResourceNotFound` a queue that does not exist."""
    source = await _existing(call, call.queue_name)
    tasks = await verbs.list_moves(call.broker.administration, source)
    return shapes.TaskList(results=tuple(_listed(call, source, task) for task in tasks[: call.body.max_results]))


async def cancel_message_move_task(call: Call[shapes.CancelMessageMoveTask]) -> shapes.CancelledTask:
    """Cancel a running task. It moves nothing after the answer. A repeat answers the same.

    Refuses with `ResourceNotFound`, `MoveNotFound`, or `MoveEnded`.
    """
    reference = task_of_handle(call.body.task_handle)
    source = await _existing(call, reference.queue_name)
    task = await verbs.cancel_move(call.broker.administration, source, reference.task_id)
    return shapes.CancelledTask(approximate_number_of_messages_moved=task.moved)


async def _destination(call: Call[shapes.StartMessageMoveTask], arn: str) -> Queue:
    """Return the queue to which the client sends messages. Refuses with `Forbidden`, and as `name_of_arn` and `_existing` do."""
    name = name_of_arn(arn)
    call.authorize(Right.SEND, name)
    return await _existing(call, name)


async def _existing(call: Call[Any], name: str) -> Queue:
    """Return a queue. Refuses with `ResourceNotFound`, the code for what an ARN or a handle names."""
    try:
        return await call.broker.queue_cache.by_name(name)
    except QueueNotFound as refusal:
        raise ResourceNotFound(refusal.detail) from None


def _listed(call: Call[shapes.ListMessageMoveTasks], source: Queue, task: MoveTask) -> shapes.ListedTask:
    to_queue, rate = task.request.to_queue, task.request.rate
    return shapes.ListedTask(
        task_handle=task_handle(source.name, task.id) if task.state is MoveState.RUNNING else None,
        status=task.state.name,
        source_arn=arn_of(source.name, call.region),
        destination_arn=None if to_queue is None else arn_of(to_queue, call.region),
        max_number_of_messages_per_second=None if rate is None else int(rate),
        approximate_number_of_messages_moved=task.moved,
        approximate_number_of_messages_to_move=task.found,
        failure_reason=task.reason,
        started_timestamp=to_milliseconds(task.started_at),
    )
