"""Raw receives: the body of the answer is the body of one message, and headers give its other fields."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from app.api.endpoints.messages import body_response
from app.api.endpoints.raw_send import EXTENDED_PREFIX
from app.api.endpoints.receiving import receive_request, received_headers
from app.broker.ports.attempts import Attempt
from app.broker.receiving.receive import ReceiveRequest
from app.domain.access import Right
from app.domain.message import HEADER_TEXTS, BodyKind, Message
from app.domain.queue import Queue
from app.domain.refusals import FieldError, InvalidRequest, QueueNotFound, RateLimited, ReceiveDisabled
from app.http.asgi import Headers
from app.http.operation import operation
from app.http.receiving import loss_counter, receive_unless_disconnected
from app.http.request import Request
from app.http.response import OCTET_STREAM, Response, encode
from app.wire.message_fields import ReceivedMessage
from app.wire.messages import NO_LOCK, ReceiveMessages, ReceiveRaw, received_messages

MAX_MESSAGE_HEADERS_BYTES = 3 << 10
"""Largest headers of one message, with its content type. Proxies refuse an answer with a large head; nginx reads 4 KiB unless it is set."""

NOT_IN_HEADERS = ("body", "body_base64", "content_type", "properties", "receiver_id")
_LONG_TEXTS = (
    "message_id",
    "group_id",
    "correlation_id",
    "subject",
    "to",
    "traceparent",
    "dead_letter_reason",
    "last_failure",
    "reply_to",
    "dead_letter_description",
)
CHOSEN_BY_CLIENTS = (*_LONG_TEXTS, *(name for name in HEADER_TEXTS if name not in (*_LONG_TEXTS, *NOT_IN_HEADERS)))
"""Texts that can be long. They follow the fields of the broker, so that they never displace a lock token."""

FIELDS = (
    *(name for name in ReceivedMessage.__struct_fields__ if name not in (*NOT_IN_HEADERS, *CHOSEN_BY_CLIENTS)),
    *CHOSEN_BY_CLIENTS,
)
OF_LOCKS = ("lock_token", "locked_until", "lock_remaining_ms")
"""The fields that a message without a lock does not have as headers."""

HEADER_NAMES = {
    field: b"traceparent" if field == "traceparent" else f"peeklock-{field.replace('_', '-')}".encode()
    for field in FIELDS
}


@operation(
    "POST", "/v1/queues/{queue}/messages/receive/raw", right=Right.LISTEN, tag="messages",
    responses={200: bytes, 204: None}, refusals=(ReceiveDisabled, QueueNotFound, RateLimited), query=ReceiveRaw,
    headers=("Idempotency-Key", "Prefer"), response_media_type=OCTET_STREAM,
)  # fmt: skip
async def receive_raw(request: Request[Any]) -> Response:
    """Receive the next message as it was sent: its body is that of the answer.

    204 if no message arrives in time. The Content-Type is that of the message. Headers give the other fields, such as
    `Peeklock-Lock-Token`, `Peeklock-Lock-Remaining-Ms` and `Peeklock-Message-Id`. `Peeklock-Properties` has the properties
    as JSON. A text that is not visible ASCII is given as `Peeklock-Subject*` (RFC 8187). `send_raw` takes both forms.

    The headers of a message have at most 3 KiB, with its Content-Type. `Peeklock-Omitted` names the fields that did not fit.
    """
    queue = await request.queue()
    receiving, wanted, attempt = _read(request, queue)
    received = await receive_unless_disconnected(request, queue, wanted, attempt)
    headers = received_headers(receiving, received)
    if not received.messages:
        return Response(status=204, headers=headers)
    (message,) = received.messages
    response = body_response(message, (*message_headers(message, request), *headers))
    response.on_lost = loss_counter(request, wanted, received.messages)
    return response


def message_headers(message: Message, request: Request[Any]) -> Headers:
    """Return the fields of a received message as headers, within `MAX_MESSAGE_HEADERS_BYTES`."""
    # The body is answered as it is, so nothing encodes it.
    (view,) = received_messages([replace(message, body=b"", body_kind=BodyKind.NONE)], request.broker.clock.monotonic)
    left = MAX_MESSAGE_HEADERS_BYTES - len(f"content-type: {message.envelope.headers.content_type or ''}\r\n")
    headers: list[tuple[bytes, bytes]] = []
    omitted: list[str] = []
    for field, name, value in _fields(view):
        size = len(name) + len(value) + len(": \r\n")
        if size > left:
            omitted.append(field)
        else:
            left -= size
            headers.append((name, value))
    if omitted:
        headers.append((b"peeklock-omitted", ", ".join(omitted).encode()))
    return headers


def _fields(view: ReceivedMessage) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield each field that has a value, with its header. Properties come last, because they can be the largest."""
    for field in FIELDS:
        if field in OF_LOCKS and view.lock_token == NO_LOCK:
            continue
        value = getattr(view, field)
        if isinstance(value, str):
            yield (field, *_text_header(HEADER_NAMES[field], value))
        elif value is not None:
            yield field, HEADER_NAMES[field], encode(value)
    if isinstance(view.properties, msgspec.Raw):
        # JSON that is ASCII has an escape for every character that a header cannot have.
        yield "properties", b"peeklock-properties", json.dumps(json.loads(bytes(view.properties))).encode()


def _text_header(name: bytes, text: str) -> tuple[bytes, bytes]:
    """Return the header of a text: as it is if it is visible ASCII, and otherwise in the form of RFC 8187."""
    if text.isascii() and text.isprintable() and text == text.strip():
        return name, text.encode()
    return name + b"*", (EXTENDED_PREFIX + quote(text, safe="")).encode()


def _read(request: Request[Any], queue: Queue) -> tuple[Request[ReceiveMessages], ReceiveRequest, Attempt | None]:
    """Return the receive that the query asks for. Refuses with `InvalidRequest`, which names the parameter."""
    query: ReceiveRaw = request.query
    values = {name: getattr(query, name) for name in query.__struct_fields__}
    receiving = replace(request, body=ReceiveMessages(**values))
    try:
        wanted = receive_request(receiving, queue)
    except InvalidRequest as refusal:
        faults = [FieldError(_in_query(fault.pointer), fault.detail) for fault in refusal.field_errors]
        raise InvalidRequest(field_errors=faults) from None
    return receiving, wanted, request.idempotent_attempt("receive_raw", encode(query))


def _in_query(pointer: str) -> str:
    return pointer if pointer.startswith("#") else f"#/query{pointer}"
