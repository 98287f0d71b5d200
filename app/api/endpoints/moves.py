"""Move tasks over HTTP: start, list, read and cancel."""

from typing import Any

from app.api.endpoints.messages import target_queue
from app.broker.administration import move as verbs
from app.broker.administration.plan import plan_move
from app.domain.access import Right
from app.domain.move_task import MoveEnded, MoveNotFound, MoveRequest, MoveRunning, other_queues
from app.domain.refusals import ForwardingTooLong, QueueNotFound, SendDisabled
from app.http.authorize import authorize
from app.http.operation import EmptyBody, operation
from app.http.request import Request
from app.http.response import Response, location
from app.wire.moves import CancelMove, MovePage, MoveView, StartedMove, StartMove, move_view
from app.wire.plans import plan_fields

MOVES = "/v1/queues/{queue}/moves"
MOVE = MOVES + "/{move_id}"


@operation(
    "POST", MOVES, right=Right.MANAGE, tag="messages",
    body=StartMove, empty_body=EmptyBody.USUAL, responses={200: StartedMove, 201: StartedMove}, has_location=True, refusals=(QueueNotFound, SendDisabled, ForwardingTooLong, MoveRunning),
    example={"to_queue": "repairs", "rate_per_second": 50},
)  # fmt: skip
async def start_move(request: Request[StartMove]) -> Response:
    """Start a task that moves the messages of a queue to another one, or dead letters back.

    Without `to_queue`, each message goes back to the queue that `dead_letter_queue` names, if that queue exists and
    forwards its dead letters to this one. Other messages that this queue has dead-lettered become available here, as after
    a redrive; the rest stays. Each other queue that takes messages needs the right to send to it. The task runs
    in the background. All servers share it, and it continues if one stops. One task of a queue runs at a time.

    It moves the available, blocked and dead-lettered messages that the queue has at the start, in order, and resets their
    counts. Messages that are locked, scheduled or deferred when the task comes to them stay, and those of their group
    behind a locked one. So do messages larger than the target's `max_message_bytes`. The task waits while a target has no
    room, at most a day. It fails if the named target is deleted or refuses sends. With `dry_run`, nothing moves, and the
    answer has the number of messages that the task would move.
    """
    queue = await request.queue()
    body = request.body
    to_queue = None
    if body.to_queue is not None:
        authorize(request.principal, Right.SEND, body.to_queue)
        to_queue = await target_queue(request, body.to_queue)
    ports = request.broker.administration
    targets = await verbs.find_targets(ports, queue, to_queue)
    for target in other_queues(queue, targets):
        authorize(request.principal, Right.SEND, target.name)
    move = MoveRequest(body.to_queue, tuple(target.id for target in targets), body.rate_per_second)
    if body.dry_run:
        plan = await plan_move(ports, queue, move, request.context.long_poll_cap_seconds)
        return Response(StartedMove(**plan_fields(plan)))
    view = move_view(await verbs.start_move(ports, queue, move))
    return Response(StartedMove(move=view), 201, headers=location(f"/v1/queues/{queue.name}/moves/{view.id}"))


@operation(
    "GET", MOVES, right=Right.BROWSE, tag="messages", responses={200: MovePage}, refusals=(QueueNotFound,),
)  # fmt: skip
async def list_moves(request: Request[None]) -> Response:
    """List the last ten move tasks of a queue, the newest first, each with its progress."""
    tasks = await verbs.list_moves(request.broker.administration, await request.queue())
    return Response(MovePage([move_view(task) for task in tasks]))


@operation(
    "GET", MOVE, right=Right.BROWSE, tag="messages", responses={200: MoveView}, refusals=(QueueNotFound, MoveNotFound),
)  # fmt: skip
async def get_move(request: Request[None]) -> Response:
    """Get a move task and its progress."""
    task = await verbs.read_move(request.broker.administration, await request.queue(), _id(request))
    return Response(move_view(task))


@operation(
    "POST", MOVE + "/cancel", right=Right.MANAGE, tag="messages",
    body=CancelMove, empty_body=EmptyBody.USUAL, responses={200: MoveView}, refusals=(QueueNotFound, MoveNotFound, MoveEnded),
)  # fmt: skip
async def cancel_move(request: Request[CancelMove]) -> Response:
    """Cancel a running move task. It moves nothing after the answer; what it has moved stays where it is."""
    task = await verbs.cancel_move(request.broker.administration, await request.queue(), _id(request))
    return Response(move_view(task))


def _id(request: Request[Any]) -> str:
    """Return the id in the path. Refuses with `MoveNotFound` one that no server gives."""
    task_id = request.path["move_id"]
    if not (task_id.isascii() and task_id.replace("-", "").isalnum()):
        raise MoveNotFound
    return task_id
