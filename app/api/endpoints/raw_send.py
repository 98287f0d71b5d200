"""Raw sends: the request body is the body of the message, and headers give its other fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec.structs import replace

from app.domain.message import MAX_ID_LENGTH, BodyKind
from app.domain.refusals import InvalidRequest, invalid_at
from app.domain.sending import NewMessage
from app.domain.suggestions import did_you_mean
from app.http.asgi import Headers
from app.http.decoding import convert, is_json
from app.http.request import Request, given_twice, invalid_header
from app.http.request_headers import RequestHeaders
from app.wire.field_types import PropertyValue
from app.wire.media_types import is_json_media_type
from app.wire.message_fields import MessageToSend
from app.wire.properties import decode_properties, raw_properties

HEADER_PREFIX = "peeklock-"
PROPERTY_HEADER_PREFIX = "peeklock-property-"
PROPERTIES_HEADER = "Peeklock-Properties"
TRANSACTION_HEADER = b"peeklock-transaction-id"
"""The header by which a raw send joins a transaction."""
EXTENDED_PREFIX = "UTF-8''"
"""What the value of a header whose name ends with `*` begins with (RFC 8187). The rest is percent-encoded."""
HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")

NOT_IN_HEADERS = ("body", "body_base64", "content_type", "properties", "traceparent")
FIELD_HEADERS: Mapping[str, str] = {
    f"Peeklock-{field.name.replace('_', '-').title()}": field.name
    for field in msgspec.structs.fields(MessageToSend)
    if field.name not in NOT_IN_HEADERS
}
"""The headers of a raw send, each with its field of the message."""

_MAX_QUOTED_NAME = 80
"""Characters of an unknown name that a refusal repeats."""

FIELD_OF_HEADER = {header.lower(): field for header, field in FIELD_HEADERS.items()}
POINTERS = {
    **{field: f"#/header/{header}" for header, field in FIELD_HEADERS.items()},
    "content_type": "#/header/Content-Type",
    "properties": "#/header/Peeklock-Property",
}


def raw_message(request: Request[bytes]) -> NewMessage:
    """Return the message of a raw send. A body with a JSON content type must be JSON, and is delivered as JSON."""
    return with_body(
        message_from_headers(request, KnownFields({"content_type": request.headers.text(b"content-type")}, {})),
        request.raw_body,
    )


def with_body(new_message: NewMessage, body: bytes) -> NewMessage:
    """Return the message with this body, which is JSON if the content type is, and bytes otherwise."""
    if not is_json_media_type(new_message.envelope.headers.content_type):
        return replace(new_message, body=body, body_kind=BodyKind.BYTES)
    if not is_json(body):
        raise invalid_at("", "The body is not the JSON that its content type promises.")
    return replace(new_message, body=body, body_kind=BodyKind.JSON)


@dataclass(frozen=True, slots=True)
class KnownFields:
    """Fields of a message that do not come from `Peeklock-*` headers, and where the request gives each."""

    values: Mapping[str, Any]
    pointers: Mapping[str, str]


def message_from_headers(request: Request[bytes], known: KnownFields) -> NewMessage:
    """Return the message of a request without its body. `Peeklock-*` headers override the `known` fields.

    Refuses with `InvalidRequest`.
    """
    header_values = header_fields(request.headers.lines)
    properties = {
        **known.values.get("properties", {}),
        **properties_header(request),
        **header_values.get("properties", {}),
    }
    values = {**known.values, **header_values, "properties": raw_properties(properties)}

    def locate(pointer: str) -> str:
        field, *names = pointer.split("/", 2)[1:]
        if names:
            return f"{POINTERS[field]}-{names[0].title()}"
        return known.pointers[field] if field in known.pointers and field not in header_values else POINTERS[field]

    values = {field: value for field, value in values.items() if value is not None}
    return convert(values, MessageToSend, locate, "The headers").new_message(request.traceparent(), locate)


def header_fields(headers: Headers) -> dict[str, Any]:
    """Return the fields and properties of `Peeklock-*` headers as texts. Names of properties are in lower case."""
    fields: dict[str, Any] = {}
    properties: dict[str, str] = {}
    for key, value in headers:
        name = key.decode("latin-1")
        if name == PROPERTIES_HEADER.lower():
            continue
        if name.startswith(PROPERTY_HEADER_PREFIX):
            _put_once(properties, name.removeprefix(PROPERTY_HEADER_PREFIX), value, name.title())
        elif name.startswith(HEADER_PREFIX):
            field = FIELD_OF_HEADER.get(name.removesuffix("*"))
            if field is None:
                raise _unknown_header(name.title())
            _put_once(fields, field, _extended(value, name.title()) if name.endswith("*") else value, name.title())
    return {**fields, "properties": properties} if properties else fields


def properties_header(request: Request[bytes]) -> dict[str, PropertyValue]:
    """Return the properties in one header, which are JSON. Refuses with `InvalidRequest`."""
    values = request.headers.every(PROPERTIES_HEADER.lower().encode())
    if not values:
        return {}
    if len(values) > 1 or not is_json(values[0], f"#/header/{PROPERTIES_HEADER}"):
        raise invalid_header(PROPERTIES_HEADER, "This is not one JSON object.")
    return decode_properties(msgspec.Raw(values[0]), _in_properties_header) or {}


def without_transaction(request: Request[bytes]) -> tuple[Request[bytes], str | None]:
    """Return a raw send without the header that names its transaction, and the id of the transaction."""
    found = request.headers.every(TRANSACTION_HEADER)
    if not found:
        return request, None
    transaction_id = header_text(found[0], "Peeklock-Transaction-Id")
    if len(found) > 1 or not transaction_id.isprintable() or not 0 < len(transaction_id) <= MAX_ID_LENGTH:
        raise invalid_header("Peeklock-Transaction-Id", "This is no id of a transaction, or more than one.")
    others = [(key, value) for key, value in request.headers.lines if key != TRANSACTION_HEADER]
    return replace(request, headers=RequestHeaders(others)), transaction_id


def idempotency_payload(request: Request[bytes]) -> bytes:
    """Return what a repeat of a raw send must have in common with the first: the body and the headers of the message."""
    header_lines = sorted(
        b"%s:%s\n" % (key, value)
        for key, value in request.headers.lines
        if key == b"content-type" or key.startswith((HEADER_PREFIX.encode(), b"ce-"))
    )
    return b"".join((*header_lines, b"\n", request.raw_body))


def header_text(value: bytes, name: str) -> str:
    """Decode a header as UTF-8. Refuses with `InvalidRequest`."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise invalid_header(name, "The value is not UTF-8.") from None


def _in_properties_header(pointer: str) -> str:
    return f"#/header/{PROPERTIES_HEADER}{pointer.removeprefix('/properties')}"


def _extended(value: bytes, name: str) -> bytes:
    """Return the text of a header whose name ends with `*`, in UTF-8. Refuses with `InvalidRequest` other encodings."""
    prefix = EXTENDED_PREFIX.encode()
    if value[: len(prefix)].upper() != prefix:
        raise invalid_header(name, f"The value of such a header begins with {EXTENDED_PREFIX} and is percent-encoded.")
    text = value[len(prefix) :]
    if any(len(escape) < 2 or not HEX_DIGITS.issuperset(escape[:2]) for escape in text.split(b"%")[1:]):
        raise invalid_header(name, "Two hexadecimal digits follow each percent sign.")
    return unquote_to_bytes(text)


def _unknown_header(name: str) -> InvalidRequest:
    shown = name if len(name) <= _MAX_QUOTED_NAME else f"{name[:_MAX_QUOTED_NAME]}..."
    near = did_you_mean(name, (*FIELD_HEADERS, PROPERTIES_HEADER), HEADER_PREFIX.title())
    return invalid_header(name, f"There is no header `{shown}`.{near}")


def _put_once(into: dict[str, Any], field: str, value: bytes, name: str) -> None:
    if field in into:
        raise given_twice(name)
    into[field] = header_text(value, name)
