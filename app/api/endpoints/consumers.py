"""Consumers over HTTP: each reports itself, and those whose reports are valid are listed."""

from typing import Any

from app.domain.access import Right
from app.domain.consumer import MAX_CONSUMERS_OF_QUEUE, ConsumersUnknown, TooManyConsumers
from app.domain.queue import is_valid_name
from app.domain.refusals import QueueNotFound
from app.http.operation import operation
from app.http.request import Request, invalid_path
from app.http.response import Response
from app.wire.consumers import ConsumerList, ReportConsumer, consumer_view

CONSUMERS = "/v1/queues/{queue}/consumers"
CONSUMER = CONSUMERS + "/{consumer}"
INVALID_NAME = "A consumer's name has the form of a queue's name."
_MAX_CONSUMER_BYTES = 4 << 10
"""Bytes of a consumer in a list: its reason and its target, both at most 500 characters, two names and three times."""


@operation(
    "PUT", CONSUMER, right=Right.LISTEN, tag="consumers",
    body=ReportConsumer, responses={204: None}, refusals=(QueueNotFound, TooManyConsumers, ConsumersUnknown),
    example={
        "state": "paused", "reason": "5 failures in a row; the last: The target answered 500.",
        "target": "https://shop.example/orders", "ttl_seconds": 60,
    },
)  # fmt: skip
async def report_consumer(request: Request[ReportConsumer]) -> Response:
    """Report that a consumer receives, or why it is paused. The report is valid for `ttl_seconds`.

    A report is for people: it changes nothing in what the queue delivers. A consumer that still runs reports again before
    the report ends. Consumers are told apart by their name and the principal of their API key. If the server uses Redis,
    reports are kept there. While Redis does not answer, the answer is 503 `consumers-unknown`.
    """
    body, consumer = request.body, _consumer(request)
    report = body.report(consumer, request.principal.name)
    queue = await request.queue()
    await request.broker.consumers.report(queue.id, report, body.ttl())
    return Response(status=204)


@operation(
    "DELETE", CONSUMER, right=Right.LISTEN, tag="consumers",
    responses={204: None}, refusals=(QueueNotFound, ConsumersUnknown),
)  # fmt: skip
async def remove_consumer(request: Request[None]) -> Response:
    """Remove the report of a consumer that stops, if the same principal has one under this name."""
    consumer = _consumer(request)
    queue = await request.queue()
    await request.broker.consumers.remove(queue.id, request.principal.name, consumer)
    return Response(status=204)


@operation(
    "GET", CONSUMERS, right=Right.BROWSE, tag="consumers",
    responses={200: ConsumerList}, refusals=(QueueNotFound, ConsumersUnknown), answer_bytes=MAX_CONSUMERS_OF_QUEUE * _MAX_CONSUMER_BYTES,
)  # fmt: skip
async def list_consumers(request: Request[None]) -> Response:
    """List the consumers of a queue whose last report is still valid. A consumer that does not report itself is not listed."""
    queue = await request.queue()
    listed = await request.broker.consumers.of_queue(queue.id)
    return Response(ConsumerList([consumer_view(one) for one in listed]))


def _consumer(request: Request[Any]) -> str:
    """Return the consumer in the path. Refuses with `InvalidRequest`."""
    name = request.path["consumer"]
    if not is_valid_name(name):
        raise invalid_path("consumer", INVALID_NAME)
    return name
