"""Recovery over HTTP: deliver the locked messages of a receiver to it again."""

from app.broker.receiving.recover import recover
from app.domain.access import Right
from app.domain.refusals import QueueNotFound, ReceiveDisabled
from app.http.operation import operation
from app.http.request import Request
from app.http.response import Response
from app.wire.messages import RecoveredMessages, RecoverMessages, message_views


@operation(
    "POST", "/v1/queues/{queue}/recover", right=Right.LISTEN, tag="messages",
    body=RecoverMessages, responses={200: RecoveredMessages}, refusals=(ReceiveDisabled, QueueNotFound),
    example={"receiver_id": "worker-1"},
)  # fmt: skip
async def recover_messages(request: Request[RecoverMessages]) -> Response:
    """Get the messages again that were received with this `receiver_id` and are still locked.

    Each has a new lock token and, unless `count` is false, is marked `redelivered`; its old token is lost, with the cause
    `recovered`. A receiver can recover after it was disconnected, in every queue. In a queue with redelivery on request, this
    is the only way to get them again. An answer may have fewer messages than the receiver holds, because its size is
    limited: settle these and recover again. Messages that have arrived since are not included; receive them.
    """
    queue = await request.queue()
    body = request.body
    messages = await recover(request.broker.recovering, queue, body.receiver_id, body.max_messages, counted=body.count)
    return Response(RecoveredMessages(message_views(messages, request.broker.clock.monotonic)))
