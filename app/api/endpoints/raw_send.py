"""Raw sends: the request body is the message, and headers carry what is written on the outside."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from app.api.http.asgi import Headers
from app.api.http.decoding import convert, is_json
from app.api.http.request import Request, invalid_header
from app.domain.message import BodyKind
from app.domain.sending import NewMessage
from app.wire.properties import raw_properties
from app.wire.sending import SendMessage
from app.wire.values import invalid_at, is_json_media_type

HEADER_PREFIX = "peeklock-"
PROPERTY_HEADER_PREFIX = "peeklock-property-"
NOT_IN_HEADERS = ("body", "body_base64", "content_type", "properties")
FIELD_HEADERS: Mapping[str, str] = {
    f"Peeklock-{field.name.replace('_', '-').title()}": field.name
    for field in msgspec.structs.fields(SendMessage)
    if field.name not in NOT_IN_HEADERS
}
"""The headers of a raw send, each with the field of a message that it gives."""

FIELD_OF_HEADER = {header.lower(): field for header, field in FIELD_HEADERS.items()}
POINTERS = {
    **{field: f"#/header/{header}" for header, field in FIELD_HEADERS.items()},
    "content_type": "#/header/Content-Type",
    "properties": "#/header/Peeklock-Property",
}


def raw_message(request: Request[bytes]) -> NewMessage:
    """The letter of a raw body. A body that calls itself JSON must be JSON, and is delivered as such."""
    return with_body(
        message_from_headers(request, KnownFields({"content_type": request.header(b"content-type")}, {})),
        request.raw_body,
    )


def with_body(new_message: NewMessage, body: bytes) -> NewMessage:
    """The letter with these bytes for a body: JSON where its content type says so, else bytes of any kind."""
    if not is_json_media_type(new_message.envelope.content_type):
        return replace(new_message, body=body, body_kind=BodyKind.BYTES)
    if not is_json(body):
        raise invalid_at("", "The body is not the JSON that its content type promises.")
    return replace(new_message, body=body, body_kind=BodyKind.JSON)


@dataclass(frozen=True, slots=True)
class KnownFields:
    """What is known of a message besides its `Peeklock-*` headers, and where in the request each field was said."""

    values: Mapping[str, Any]
    pointers: Mapping[str, str]


def message_from_headers(request: Request[bytes], known: KnownFields) -> NewMessage:
    """The letter that a request asks for, without its body; `Peeklock-*` headers win over what is known otherwise."""
    given = header_fields(request.headers)
    properties = {**known.values.get("properties", {}), **given.get("properties", {})}
    values = {**known.values, **given, "properties": raw_properties(properties)}

    def locate(pointer: str) -> str:
        field, *names = pointer.split("/", 2)[1:]
        if names:
            return f"{POINTERS[field]}-{names[0].title()}"
        return known.pointers[field] if field in known.pointers and field not in given else POINTERS[field]

    values = {field: value for field, value in values.items() if value is not None}
    return convert(values, SendMessage, locate).new_message(request.broker.new_id, request.traceparent(), locate)


def header_fields(headers: Headers) -> dict[str, Any]:
    """The fields and properties that `Peeklock-*` headers carry, as texts; a property's name is in lower case."""
    given: dict[str, Any] = {}
    properties: dict[str, str] = {}
    for key, value in headers:
        name = key.decode("latin-1")
        if name.startswith(PROPERTY_HEADER_PREFIX):
            _put_once(properties, name.removeprefix(PROPERTY_HEADER_PREFIX), value, name.title())
        elif name.startswith(HEADER_PREFIX):
            if name not in FIELD_OF_HEADER:
                raise invalid_header(name.title(), "There is no such header.")
            _put_once(given, FIELD_OF_HEADER[name], value, name.title())
    return {**given, "properties": properties} if properties else given


def idempotency_payload(request: Request[bytes]) -> bytes:
    """What a repeat of a raw send must have in common with the first: the body and what headers say of it."""
    header_lines = sorted(
        b"%s:%s\n" % (key, value)
        for key, value in request.headers
        if key == b"content-type" or key.startswith((HEADER_PREFIX.encode(), b"ce-"))
    )
    return b"".join((*header_lines, b"\n", request.raw_body))


def header_text(value: bytes, name: str) -> str:
    """The text of a header, which is UTF-8 where it is not ASCII."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise invalid_header(name, "The value is not UTF-8.") from None


def _put_once(into: dict[str, Any], field: str, value: bytes, name: str) -> None:
    if field in into:
        raise invalid_header(name, "This header is given more than once.")
    into[field] = header_text(value, name)
