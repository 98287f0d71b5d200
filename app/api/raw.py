"""Raw sends: the request body is the message, and headers carry what is written on the outside."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from app.api.bodies import Headers
from app.api.decoding import converted, is_json
from app.api.desk import Call, in_header
from app.domain.message import BodyKind
from app.domain.sending import Letter
from app.wire.properties import written_properties
from app.wire.sending import SendMessage
from app.wire.values import at, says_json

PREFIX = "peeklock-"
PROPERTY_PREFIX = "peeklock-property-"
OTHERWISE = ("body", "body_base64", "content_type", "properties")
FIELD_HEADERS: Mapping[str, str] = {
    f"Peeklock-{field.name.replace('_', '-').title()}": field.name
    for field in msgspec.structs.fields(SendMessage)
    if field.name not in OTHERWISE
}
"""The headers of a raw send, each with the field of a message that it gives."""

FIELDS = {header.lower(): field for header, field in FIELD_HEADERS.items()}
PLACES = {
    **{field: f"#/header/{header}" for header, field in FIELD_HEADERS.items()},
    "content_type": "#/header/Content-Type",
    "properties": "#/header/Peeklock-Property",
}


def raw_letter(call: Call[bytes]) -> Letter:
    """The letter of a raw body. A body that calls itself JSON must be JSON, and is delivered as such."""
    return content_of(letter_of(call, Known({"content_type": call.header(b"content-type")}, {})), call.raw)


def content_of(letter: Letter, body: bytes) -> Letter:
    """The letter with these bytes for a body: JSON where its content type says so, else bytes of any kind."""
    if not says_json(letter.envelope.content_type):
        return replace(letter, body=body, body_kind=BodyKind.BYTES)
    if not is_json(body):
        raise at("", "The body is not the JSON that its content type promises.")
    return replace(letter, body=body, body_kind=BodyKind.JSON)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a message besides its `Peeklock-*` headers, and where in the request each field was said."""

    values: Mapping[str, Any]
    places: Mapping[str, str]


def letter_of(call: Call[bytes], known: Known) -> Letter:
    """The letter that a request asks for, without its body; `Peeklock-*` headers win over what is known otherwise."""
    given = outside(call.headers)
    properties = {**known.values.get("properties", {}), **given.get("properties", {})}
    values = {**known.values, **given, "properties": written_properties(properties)}

    def locate(pointer: str) -> str:
        field, *names = pointer.split("/", 2)[1:]
        if names:
            return f"{PLACES[field]}-{names[0].title()}"
        return known.places[field] if field in known.places and field not in given else PLACES[field]

    values = {field: value for field, value in values.items() if value is not None}
    return converted(values, SendMessage, locate).letter(call.broker.new_id, call.traceparent(), locate)


def outside(headers: Headers) -> dict[str, Any]:
    """The fields and properties that `Peeklock-*` headers carry, as texts; a property's name is in lower case."""
    given: dict[str, Any] = {}
    properties: dict[str, str] = {}
    for key, value in headers:
        name = key.decode("latin-1")
        if name.startswith(PROPERTY_PREFIX):
            _put(properties, name.removeprefix(PROPERTY_PREFIX), value, name.title())
        elif name.startswith(PREFIX):
            if name not in FIELDS:
                raise in_header(name.title(), "There is no such header.")
            _put(given, FIELDS[name], value, name.title())
    return {**given, "properties": properties} if properties else given


def identity(call: Call[bytes]) -> bytes:
    """What a repeat of a raw send must have in common with the first: the body and what headers say of it."""
    told = sorted(
        b"%s:%s\n" % (key, value)
        for key, value in call.headers
        if key == b"content-type" or key.startswith((PREFIX.encode(), b"ce-"))
    )
    return b"".join((*told, b"\n", call.raw))


def text(value: bytes, name: str) -> str:
    """The text of a header, which is UTF-8 where it is not ASCII."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise in_header(name, "The value is not UTF-8.") from None


def _put(into: dict[str, Any], field: str, value: bytes, name: str) -> None:
    if field in into:
        raise in_header(name, "This header is given more than once.")
    into[field] = text(value, name)
