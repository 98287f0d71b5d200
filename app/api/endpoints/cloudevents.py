"""CloudEvents 1.0 over HTTP, in binary and structured mode, as messages.

Attributes become properties with the prefix of the AMQP binding of CloudEvents, so a receiver can rebuild the event.
`Peeklock-*` headers give the fields that an event does not have, and override those that it has.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec

from app.api.endpoints.raw_send import KnownFields, header_text, message_from_headers, with_body
from app.domain.message import MAX_ID_LENGTH, MAX_PROPERTIES, MAX_PROPERTIES_BYTES
from app.domain.refusals import invalid_at
from app.domain.sending import NewMessage
from app.http.decoding import body_decoder
from app.http.request import Request, given_twice, invalid_header
from app.wire.field_types import DateTime
from app.wire.media_types import is_json_media_type
from app.wire.properties import MAX_RAW_PROPERTIES_BYTES
from app.wire.values import base64_bytes, pointer_segment

HEADER_PREFIX = "ce-"
PROPERTY_PREFIX = "cloudEvents:"
MEDIA_TYPE_PREFIX = "application/cloudevents"
STRUCTURED_MEDIA_TYPE = "application/cloudevents+json"
REQUIRED_ATTRIBUTES = ("specversion", "id", "source", "type")
DATA_MEMBERS = ("data", "data_base64")
STRING_ATTRIBUTES = frozenset((*REQUIRED_ATTRIBUTES, "datacontenttype", "dataschema", "subject", "time"))
"""The attributes that the specification defines. All are strings."""
VERSION = "1.0"

ATTRIBUTE_NAME = re.compile("[a-z0-9]+")
MAX_ATTRIBUTE_NAME_LENGTH = MAX_ID_LENGTH - len(PROPERTY_PREFIX)
PLANE_NONCHARACTERS = "".join(chr(plane | last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))
FORBIDDEN_CHARACTERS = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{PLANE_NONCHARACTERS}]")
"""Control characters and the noncharacters of Unicode."""
SEGMENT = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
URI_REFERENCE = re.compile(
    rf"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):|(?![^/?#]*:))"
    rf"(?://(?:{SEGMENT}|[\[\]])*+(?:/(?:{SEGMENT}|/)*+)?|(?!//)(?:{SEGMENT}|/)*+)"
    rf"(?:\?(?:{SEGMENT}|[/?])*+)?(?:#(?:{SEGMENT}|[/?])*+)?"
)
"""RFC 3986, 4.1. Without a scheme, the first segment has no colon.

Each character matches in one way only, which keeps the time linear: an authority ends at the first slash, and a path
without an authority does not begin with two slashes.
"""
RFC3339_TIME = re.compile(r"[0-9-]{10}[Tt ][0-9:]{8}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})")

MAX_BYTES_WITHOUT_DATA = MAX_RAW_PROPERTIES_BYTES
"""Largest structured event in bytes, without its data."""

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Data(msgspec.Struct):
    """The data of a structured event. The decoder skips the other members."""

    data: msgspec.Raw = msgspec.Raw()
    data_base64: msgspec.Raw = msgspec.Raw()


_decode_data = body_decoder(_Data)
_decode_members = body_decoder(dict[str, msgspec.Raw])
_decode_attribute = msgspec.json.Decoder(str | Int32 | bool | None).decode
_decode_text = msgspec.json.Decoder(str).decode


def is_event(request: Request[bytes]) -> bool:
    """Return whether the headers mark the request as a CloudEvent."""
    return b"ce-specversion" in request.headers.values or _media_type(request).startswith(MEDIA_TYPE_PREFIX)


def event_message(request: Request[bytes]) -> NewMessage:
    """Return the message of a CloudEvent. Refuses with `InvalidRequest` invalid events and batches of events."""
    media_type = _media_type(request)
    if media_type == STRUCTURED_MEDIA_TYPE:
        return _from_structured(request)
    if media_type.startswith(MEDIA_TYPE_PREFIX):
        raise invalid_header("Content-Type", f"Only a single {STRUCTURED_MEDIA_TYPE} event is accepted.")
    return _from_binary(request)


def _from_binary(request: Request[bytes]) -> NewMessage:
    """Read an event whose attributes are headers and whose data is the body."""
    attributes: dict[str, str] = {}
    for key, value in request.headers.lines:
        name = key.decode("latin-1")
        if name.startswith(HEADER_PREFIX):
            if name.removeprefix(HEADER_PREFIX) in attributes:
                raise given_twice(name)
            attributes[name.removeprefix(HEADER_PREFIX)] = _unquoted(header_text(value, name))
    _check_attribute_count(list(attributes), _header_pointer)
    _check_attributes(attributes, _header_pointer)
    known = KnownFields(
        _message_fields(attributes, request.headers.text(b"content-type")), _pointers(attributes, _header_pointer)
    )
    new_message = message_from_headers(request, known)
    return with_body(new_message, request.raw_body) if request.raw_body else new_message


def _from_structured(request: Request[bytes]) -> NewMessage:
    """Read an event that is one JSON object with its data as a member."""
    data_members: _Data = _decode_data(request.raw_body)
    if (
        len(request.raw_body) - len(bytes(data_members.data)) - len(bytes(data_members.data_base64))
        > MAX_BYTES_WITHOUT_DATA
    ):
        raise invalid_at("", f"The members of an event besides its data have at most {MAX_BYTES_WITHOUT_DATA} bytes.")
    members: dict[str, msgspec.Raw] = _decode_members(request.raw_body)
    _check_attribute_count([name for name in members if name not in DATA_MEMBERS], pointer_segment)
    attributes = {name: _attribute_value(name, raw) for name, raw in members.items() if name not in DATA_MEMBERS}
    attributes = {name: value for name, value in attributes.items() if value is not None}
    _check_attributes(attributes, pointer_segment)
    content_type = attributes.get("datacontenttype", "application/json" if "data" in members else None)
    pointers = {**_pointers(attributes, pointer_segment), "content_type": "/datacontenttype"}
    new_message = message_from_headers(request, KnownFields(_message_fields(attributes, content_type), pointers))
    data = _data(members, new_message.envelope.headers.content_type)
    return new_message if data is None else with_body(new_message, data)


def _data(members: Mapping[str, msgspec.Raw], content_type: str | None) -> bytes | None:
    """Return the bytes of an event's data, None without data."""
    if "data_base64" in members:
        if "data" in members:
            raise invalid_at("/data_base64", "Give data or data_base64, not both.")
        return base64_bytes(_data_text("data_base64", members["data_base64"]), "/data_base64")
    if "data" not in members:
        return None
    if is_json_media_type(content_type):
        return bytes(members["data"])
    return _data_text("data", members["data"]).encode()


def _message_fields(attributes: Mapping[str, Any], content_type: Any) -> dict[str, Any]:
    """Return the fields of the message that an event gives."""
    return {
        "message_id": attributes["id"],
        "subject": attributes["type"],
        "content_type": content_type,
        "properties": {PROPERTY_PREFIX + name: value for name, value in attributes.items()},
    }


def _pointers(attributes: Mapping[str, Any], pointer_to: Callable[[str], str]) -> dict[str, str]:
    """Return where the request gives each field. For properties that are too large together it is the largest one."""
    largest = max(attributes, key=lambda name: len(str(attributes[name])))
    return {"message_id": pointer_to("id"), "subject": pointer_to("type"), "properties": pointer_to(largest)}


def _check_attributes(attributes: Mapping[str, Any], pointer_to: Callable[[str], str]) -> None:
    """Refuse with `InvalidRequest` attributes that the specification does not allow (CloudEvents 1.0.2, 3)."""
    for name in REQUIRED_ATTRIBUTES:
        if name not in attributes:
            raise invalid_at(pointer_to(name), f"The attribute {name} is missing.")
    for name, value in attributes.items():
        if fault := _fault_in_name(name) or _fault_in_value(name, value):
            raise invalid_at(pointer_to(name), fault)


def _check_attribute_count(names: Sequence[str], pointer_to: Callable[[str], str]) -> None:
    """Refuse with `InvalidRequest` more attributes than a message has properties."""
    if len(names) > MAX_PROPERTIES:
        raise invalid_at(pointer_to(names[MAX_PROPERTIES]), f"An event has at most {MAX_PROPERTIES} attributes.")


def _fault_in_name(name: str) -> str | None:
    if ATTRIBUTE_NAME.fullmatch(name) is None:
        return "The name of an attribute has lower-case letters and digits, and nothing else."
    if name in DATA_MEMBERS:
        return f"No attribute is named {name}."
    return (
        f"The name of an attribute has at most {MAX_ATTRIBUTE_NAME_LENGTH} characters."
        if len(name) > MAX_ATTRIBUTE_NAME_LENGTH
        else None
    )


def _fault_in_value(name: str, value: Any) -> str | None:
    if isinstance(value, str) and len(value) > MAX_PROPERTIES_BYTES:
        return f"An attribute has at most {MAX_PROPERTIES_BYTES} characters."
    if isinstance(value, str) and FORBIDDEN_CHARACTERS.search(value):
        return "An attribute has no control characters, and no code points that Unicode gives to no character."
    if name not in STRING_ATTRIBUTES:
        return None
    if not isinstance(value, str) or not value:
        return f"The attribute {name} is a string that is not empty."
    attribute_format = ATTRIBUTE_FORMATS.get(name)
    return None if attribute_format is None or attribute_format[0](value) else attribute_format[1]


def _is_uri(value: str) -> bool:
    match = URI_REFERENCE.fullmatch(value)
    return match is not None and match["scheme"] is not None


def _is_time(value: str) -> bool:
    """Return whether this is a time of RFC 3339. The library alone would accept other formats too."""
    try:
        msgspec.convert(value, DateTime)
    except msgspec.ValidationError:
        return False
    return RFC3339_TIME.fullmatch(value) is not None


ATTRIBUTE_FORMATS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "specversion": (VERSION.__eq__, f"Only CloudEvents {VERSION} is understood."),
    "source": (URI_REFERENCE.fullmatch, "This is not a URI reference."),
    "dataschema": (_is_uri, "This is not a URI."),
    "time": (_is_time, "This is not a time as RFC 3339 writes it."),
}


def _attribute_value(name: str, raw: msgspec.Raw) -> Any:
    try:
        return _decode_attribute(raw)
    except msgspec.DecodeError:
        raise invalid_at(
            pointer_segment(name), "An attribute of an event is a string, an integer of 32 bits, true or false."
        ) from None


def _data_text(name: str, raw: msgspec.Raw) -> str:
    try:
        return _decode_text(raw)
    except msgspec.DecodeError:
        raise invalid_at(pointer_segment(name), "Data that is not JSON is given as a string.") from None


def _header_pointer(name: str) -> str:
    """Return the pointer to an attribute in binary mode. In structured mode it is a member of the body."""
    return f"#/header/{HEADER_PREFIX}{name}"


def _unquoted(value: str) -> str:
    """Decode a header of the HTTP binding, which is percent-encoded and may be in double quotes."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return unquote(value)


def _media_type(request: Request[bytes]) -> str:
    return (request.headers.text(b"content-type") or "").partition(";")[0].strip().lower()
