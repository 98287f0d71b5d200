"""Publishing over HTTP: one message, a batch, or a raw body, for the queues of all subscriptions that match."""

from collections.abc import Sequence
from typing import Any

from app.api.endpoints.batch_entries import all_messages, read_entries
from app.api.endpoints.cloudevents import event_message, is_event
from app.api.endpoints.raw_send import (
    FIELD_HEADERS,
    PROPERTIES_HEADER,
    idempotency_payload,
    raw_message,
    without_transaction,
)
from app.api.endpoints.refusals import JOIN_REFUSALS, STORE_REFUSALS
from app.api.endpoints.sending import SEND_HEADER_NAMES
from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.topics.publish import publish
from app.broker.transactions.join import join_publishes
from app.domain.access import Right
from app.domain.message import Durability
from app.domain.refusals import TopicNotFound, invalid_at
from app.domain.sending import NewMessage
from app.domain.topic import Published
from app.http.operation import EmptyBody, operation
from app.http.request import Request
from app.http.response import REPLAYED_HEADERS, Response
from app.wire.topics import PublishBatch, PublishedMessage, PublishMessage, PublishResults, published_message

MESSAGES = "/v1/topics/{topic}/messages"
PUBLISH_REFUSALS = (TopicNotFound, *STORE_REFUSALS, *JOIN_REFUSALS)


@operation(
    "POST", MESSAGES, right=Right.SEND, tag="topics",
    body=PublishMessage, empty_body=EmptyBody.REFUSED, responses={200: PublishedMessage, 201: PublishedMessage}, refusals=PUBLISH_REFUSALS,
    headers=SEND_HEADER_NAMES, example={"body": {"order": 17}, "properties": {"region": "eu"}},
)  # fmt: skip
async def publish_message(request: Request[PublishMessage]) -> Response:
    """Publish a message: store a copy in the queue of each subscription that matches it, in all of them or in none.

    The copies have one message id. Each is subject to the settings of its queue. If one queue is full, disabled or
    refuses the message, nothing is stored, and the refusal names the queue. A message that no subscription matches is
    answered with 200 and `stored: false`. Publishing needs no right on the queues. With a `transaction_id` the copies are
    stored at the commit of that transaction, for the subscriptions that match now.
    """
    new_message = request.body.new_message(request.traceparent())
    attempt = request.idempotent_attempt("publish")
    return await _publish_one(request, new_message, request.body.transaction_id, attempt)


@operation(
    "POST", MESSAGES + "/raw", right=Right.SEND, tag="topics",
    body=bytes, responses={200: PublishedMessage, 201: PublishedMessage}, refusals=PUBLISH_REFUSALS,
    headers=(*SEND_HEADER_NAMES, "Peeklock-Transaction-Id", PROPERTIES_HEADER, *FIELD_HEADERS),
)  # fmt: skip
async def publish_raw(request: Request[bytes]) -> Response:
    """Publish the request body as it is, with the headers of `send_raw`. CloudEvents are accepted as there."""
    attempt = request.idempotent_attempt("publish", idempotency_payload(request))
    request, transaction_id = without_transaction(request)
    new_message = event_message(request) if is_event(request) else raw_message(request)
    return await _publish_one(request, new_message, transaction_id, attempt)


@operation(
    "POST", MESSAGES + "/batch", right=Right.SEND, tag="topics",
    body=PublishBatch, responses={200: PublishResults, 201: PublishResults}, refusals=PUBLISH_REFUSALS,
    headers=SEND_HEADER_NAMES, example={"messages": [{"body": "first"}, {"body": "second"}]},
)  # fmt: skip
async def publish_batch(request: Request[PublishBatch]) -> Response:
    """Publish many messages in one request: the copies of all of them are stored, or none.

    The messages have different ids. The answer is 200 if no subscription matches any of them.
    """
    new_messages = all_messages(read_entries(request.body.messages, request.traceparent()))
    attempt = request.idempotent_attempt("publish_batch")
    published = await _publish(request, new_messages, request.body.transaction_id, attempt)
    status = 201 if any(one.matched for one in published.result) else 200
    results = PublishResults([published_message(one) for one in published.result])
    return Response(results, status, headers=REPLAYED_HEADERS if published.replayed else ())


async def _publish_one(
    request: Request[Any], new_message: NewMessage, transaction_id: str | None, attempt: Attempt | None
) -> Response:
    if new_message.durability is Durability.VOLATILE and transaction_id is None:
        raise invalid_at("/durability", "A published message is always durable.")
    published = await _publish(request, [new_message], transaction_id, attempt)
    (one,) = published.result
    headers = REPLAYED_HEADERS if published.replayed else ()
    return Response(published_message(one), 201 if one.matched else 200, headers=headers)


async def _publish(
    request: Request[Any], new_messages: Sequence[NewMessage], transaction_id: str | None, attempt: Attempt | None
) -> AttemptResult[list[Published]]:
    """Publish messages, or let them join a transaction."""
    topic = request.path["topic"]
    if transaction_id is not None:
        key = request.transaction_key(transaction_id)
        return await join_publishes(request.broker.transactions, key, topic, new_messages, attempt)
    return await publish(request.broker.topics, topic, new_messages, attempt)
