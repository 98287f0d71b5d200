"""Explanations over HTTP: why a message is not delivered, and why a queue is stalled."""

from app.api.endpoints.messages import MESSAGE, sequence_number_of
from app.api.endpoints.queues import QUEUE
from app.broker.administration.explain import explain_one_message, explain_whole_queue
from app.broker.administration.queues import reload_queue
from app.domain.access import Right
from app.domain.refusals import MessageNotFound, QueueNotFound
from app.http.operation import operation
from app.http.request import Request
from app.http.response import Response
from app.wire.explanations import (
    MessageExplanationView,
    QueueExplanationView,
    message_explanation_view,
    queue_explanation_view,
)


@operation(
    "GET", MESSAGE + "/explain", right=Right.BROWSE, tag="messages",
    responses={200: MessageExplanationView}, refusals=(QueueNotFound, MessageNotFound),
)  # fmt: skip
async def explain_message(request: Request[None]) -> Response:
    """Explain why a message is not delivered, or how it ended.

    Nothing is locked, counted or changed. A message that has ended is explained as long as the archive has it, or for an
    hour after it was settled in a queue without an archive.
    """
    queue = await reload_queue(request.broker.administration, request.path["queue"])
    number, viewer = sequence_number_of(request), request.principal.name
    explained = await explain_one_message(request.broker.administration, queue, number, viewer)
    return Response(message_explanation_view(explained))


@operation(
    "GET", QUEUE + "/explain", right=Right.BROWSE, tag="queues",
    responses={200: QueueExplanationView}, refusals=(QueueNotFound,),
)  # fmt: skip
async def explain_queue(request: Request[None]) -> Response:
    """Explain why a queue is stalled, or that it is not. Nothing is locked, counted or changed."""
    queue = await reload_queue(request.broker.administration, request.path["queue"])
    explanation = await explain_whole_queue(request.broker.administration, queue, request.principal.name)
    return Response(queue_explanation_view(explanation))
