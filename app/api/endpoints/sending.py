"""Sending over HTTP: one message, a batch, or a raw body."""

from collections.abc import Sequence
from functools import partial
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
from app.api.endpoints.refusals import JOIN_REFUSALS, SEND_REFUSALS
from app.broker.ports.attempts import Attempt
from app.broker.sending.send import send, send_each, send_volatile
from app.broker.sending.send_synchronously import send_synchronously
from app.broker.transactions.join import join_sends
from app.domain.access import Right
from app.domain.message import Durability, Receipt
from app.domain.refusals import InvalidRequest, NoAnswer, NoReceiver, NotAccepted, RateLimited, Refusal, invalid_at
from app.domain.sending import NewMessage
from app.http.asgi import Headers, run_until_disconnect
from app.http.operation import EmptyBody, operation
from app.http.problems import problem_of
from app.http.request import Request, invalid_header
from app.http.response import REPLAYED_HEADERS, Response, location
from app.wire.sending import (
    AcceptedMessage,
    RefusedSend,
    SendAnswer,
    SendBatch,
    SendMessage,
    SendResult,
    SendResults,
    SentMessage,
    SentResult,
    delivered_message,
)

SEND_HEADER_NAMES = ("Idempotency-Key", "traceparent")


@operation(
    "POST", "/v1/queues/{queue}/messages", right=Right.SEND, tag="messages",
    body=SendMessage, empty_body=EmptyBody.REFUSED, responses={200: SendAnswer, 201: SendAnswer, 202: SendAnswer}, has_location=True,
    refusals=(*SEND_REFUSALS, *JOIN_REFUSALS, RateLimited, NoReceiver, NotAccepted, NoAnswer), headers=SEND_HEADER_NAMES,
    example={"body": {"order": 17}, "subject": "order.placed", "properties": {"region": "eu"}},
)  # fmt: skip
async def send_message(request: Request[SendMessage]) -> Response:
    """Send a message.

    It is stored durably before the answer. With the durability `volatile` the answer is 202 before the message is
    stored: a crash within the next moments loses it, and a lost connection to the database may store it twice. With a
    `transaction_id` it is stored at the commit of that transaction.

    With the delivery `synchronous` the answer is 200 once a receiver has completed the message, with the reply that it
    gave. Otherwise nothing is stored: the answer is 409 `no-receiver` or `not-accepted`, or 504 `no-answer` if a receiver
    took the message and did not settle it in time.
    """
    if request.body.delivery == "synchronous":
        return await _send_synchronously(request)
    new_message = request.body.new_message(request.traceparent())
    return await _send(request, new_message, request.body.transaction_id, request.idempotent_attempt("send"))


async def _send_synchronously(request: Request[SendMessage]) -> Response:
    if request.body.transaction_id is not None:
        raise invalid_at("/transaction_id", "A synchronous send is delivered at once.")
    new_message, wait_seconds = request.body.synchronous_message(request.traceparent())
    ports, name, attempt = (
        request.broker.sending,
        request.path["queue"],
        request.idempotent_attempt("send"),
    )
    sending = partial(send_synchronously, ports, name, new_message, request.wait_seconds(wait_seconds), attempt)
    sent = await run_until_disconnect(sending, request.receive)
    # The wait may be long, and a key that has ended meanwhile gets no reply.
    await request.authorization.check(name, request.credential)
    return Response(delivered_message(sent.result), headers=REPLAYED_HEADERS if sent.replayed else ())


@operation(
    "POST", "/v1/queues/{queue}/messages/raw", right=Right.SEND, tag="messages",
    body=bytes, responses={201: SendAnswer, 202: SendAnswer}, has_location=True, refusals=(*SEND_REFUSALS, *JOIN_REFUSALS, RateLimited),
    headers=(*SEND_HEADER_NAMES, "Peeklock-Transaction-Id", PROPERTIES_HEADER, *FIELD_HEADERS),
)  # fmt: skip
async def send_raw(request: Request[bytes]) -> Response:
    """Send the request body as it is.

    Its Content-Type is kept. Headers give the other fields of the message: `Peeklock-Message-Id`,
    `Peeklock-Priority`, `Peeklock-Delay-Seconds` and so on, and `Peeklock-Property-<name>` for a property.
    `Peeklock-Properties` gives properties as a JSON object. A name that ends with `*`, such as `Peeklock-Subject*`, gives a
    percent-encoded text (RFC 8187).

    CloudEvents 1.0 are accepted in binary mode (`ce-*` headers) and in structured mode
    (`application/cloudevents+json`). `id` becomes the message id, `type` the subject, `data` the body, and every
    attribute a property named `cloudEvents:<attribute>`. Two sources may use the same `id`, so only one source should
    send to a queue that detects duplicates.
    """
    attempt = request.idempotent_attempt("send", idempotency_payload(request))
    request, transaction_id = without_transaction(request)
    new_message = event_message(request) if is_event(request) else raw_message(request)
    return await _send(request, new_message, transaction_id, attempt)


@operation(
    "POST", "/v1/queues/{queue}/messages/batch", right=Right.SEND, tag="messages",
    body=SendBatch, responses={201: SendResults}, refusals=(*SEND_REFUSALS, *JOIN_REFUSALS), headers=SEND_HEADER_NAMES,
    example={"messages": [{"body": "first"}, {"body": "second"}]},
)  # fmt: skip
async def send_batch(request: Request[SendBatch]) -> Response:
    """Send many messages in one request: all or none, or each independently with `atomic: false`.

    With `atomic: false`, an invalid message gets the problem that a single send of it would get, and its pointers name
    the entry. The whole request is refused only if `messages` is not a list of 1 to 1000 entries.
    """
    body, name = request.body, request.path["queue"]
    entries = read_entries(body.messages, request.traceparent())
    if not body.atomic:
        return await _send_each(request, entries)
    new_messages, attempt = all_messages(entries), request.idempotent_attempt("send_batch")
    if body.transaction_id is not None:
        key = request.transaction_key(body.transaction_id)
        joined = await join_sends(request.broker.transactions, key, name, new_messages, attempt)
        results, replayed = SendResults([SentResult.uncommitted(one) for one in joined.result]), joined.replayed
    else:
        sent = await send(request.broker.sending, name, new_messages, attempt)
        results, replayed = SendResults([SentResult.of(receipt) for receipt in sent.result]), sent.replayed
    return Response(results, 201, headers=REPLAYED_HEADERS if replayed else ())


async def _send_each(request: Request[SendBatch], entries: Sequence[NewMessage | InvalidRequest]) -> Response:
    if request.body.transaction_id is not None:
        raise invalid_at("/atomic", "A batch in a transaction is atomic.")
    if b"idempotency-key" in request.headers.values:
        raise invalid_header("Idempotency-Key", "An Idempotency-Key is only accepted with an atomic batch.")
    outcomes = await send_each(request.broker.sending, request.path["queue"], entries)
    results = [_result(index, outcome, request.request_id) for index, outcome in enumerate(outcomes)]
    return Response(SendResults(results), 201)


async def _send(
    request: Request[Any], new_message: NewMessage, transaction_id: str | None, attempt: Attempt | None
) -> Response:
    """Send one message: let it join a transaction, accept it as volatile, or store it."""
    name = request.path["queue"]
    if transaction_id is not None:
        key = request.transaction_key(transaction_id)
        joined = await join_sends(request.broker.transactions, key, name, [new_message], attempt)
        (message_id,) = joined.result
        return Response(SentMessage.uncommitted(message_id), 201, headers=REPLAYED_HEADERS if joined.replayed else ())
    if new_message.durability is Durability.VOLATILE:
        if attempt is not None:
            raise invalid_header("Idempotency-Key", "An Idempotency-Key is only accepted with a durable message.")
        return Response(AcceptedMessage(await send_volatile(request.broker.sending, name, new_message)), 202)
    sent = await send(request.broker.sending, name, [new_message], attempt)
    (receipt,) = sent.result
    headers = REPLAYED_HEADERS if sent.replayed else ()
    return Response(SentMessage.of(receipt), 201, headers=(*headers, *await _location(request, receipt)))


async def _location(request: Request[Any], receipt: Receipt) -> Headers:
    """Return where the message is. A queue to which messages are forwarded may be none of the sender's concern."""
    try:
        queue = await request.queue()
    except Refusal:
        return ()  # the queue was deleted since
    is_here = queue.settings.forward_to is None
    return location(f"/v1/queues/{queue.name}/messages/{receipt.sequence_number}") if is_here else ()


def _result(index: int, outcome: Receipt | Refusal, tracking_id: str) -> SendResult:
    if isinstance(outcome, Refusal):
        return RefusedSend(problem_of(outcome, tracking_id, f"/messages/{index}"))
    return SentResult.of(outcome)
