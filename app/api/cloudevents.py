"""CloudEvents 1.0 over HTTP, in binary and structured mode, as messages.

Attributes become properties with the prefix that the AMQP binding of CloudEvents gives them, so that a
receiver can put the event together again. `Peeklock-*` headers say what an event cannot, and win.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec

from app.api.decoding import body_decoder
from app.api.desk import Call, in_header
from app.api.raw import Known, content_of, letter_of, text
from app.domain.message import LARGEST_PROPERTIES, LONGEST_ID, MOST_PROPERTIES
from app.domain.sending import Letter
from app.wire.properties import LARGEST_WRITTEN
from app.wire.shapes import Moment
from app.wire.values import at, base64_bytes, says_json, step

PREFIX = "ce-"
PROPERTY_PREFIX = "cloudEvents:"
EVENTS = "application/cloudevents"
STRUCTURED = "application/cloudevents+json"
REQUIRED = ("specversion", "id", "source", "type")
DATA = ("data", "data_base64")
TEXTS = frozenset((*REQUIRED, "datacontenttype", "dataschema", "subject", "time"))
"""The attributes that the specification knows, each a string of its own form."""
VERSION = "1.0"

NAME = re.compile("[a-z0-9]+")
LONGEST_NAME = LONGEST_ID - len(PROPERTY_PREFIX)
ENDS_OF_PLANES = "".join(chr(plane | last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))
NO_CHARACTERS = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{ENDS_OF_PLANES}]")
"""Control characters, and what Unicode says are no characters: the ends of its planes, and a few more."""
SEGMENT = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
URI_REFERENCE = re.compile(
    rf"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):|(?![^/?#]*:))"
    rf"(?://(?:{SEGMENT}|[\[\]])*+(?:/(?:{SEGMENT}|/)*+)?|(?!//)(?:{SEGMENT}|/)*+)"
    rf"(?:\?(?:{SEGMENT}|[/?])*+)?(?:#(?:{SEGMENT}|[/?])*+)?"
)
"""RFC 3986, 4.1; without a scheme no colon stands in the first segment.

Each character has one place: an authority ends at the first slash, and a path without one does not begin with two.
"""
TIME = re.compile(r"[0-9-]{10}[Tt ][0-9:]{8}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})")

LARGEST_REST = LARGEST_WRITTEN
"""Bytes of a structured event without its data."""

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Data(msgspec.Struct):
    """The data of a structured event; its other members are not built."""

    data: msgspec.Raw = msgspec.Raw()
    data_base64: msgspec.Raw = msgspec.Raw()


_decode_data = body_decoder(_Data)
_decode_members = body_decoder(dict[str, msgspec.Raw])
_decode_attribute = msgspec.json.Decoder(str | Int32 | bool | None).decode
_decode_text = msgspec.json.Decoder(str).decode


def is_event(call: Call[bytes]) -> bool:
    """Whether the request says that it carries a CloudEvent."""
    return call.header(b"ce-specversion") is not None or _essence(call).startswith(EVENTS)


def event_letter(call: Call[bytes]) -> Letter:
    """The letter of a CloudEvent. Refuses with `InvalidRequest` what is not one, and whole batches of them."""
    essence = _essence(call)
    if essence == STRUCTURED:
        return _structured(call)
    if essence.startswith(EVENTS):
        raise in_header("Content-Type", f"Only a single {STRUCTURED} event is accepted.")
    return _binary(call)


def _binary(call: Call[bytes]) -> Letter:
    """An event whose attributes are headers and whose data is the body."""
    attributes: dict[str, str] = {}
    for key, value in call.headers:
        name = key.decode("latin-1")
        if name.startswith(PREFIX):
            if name.removeprefix(PREFIX) in attributes:
                raise in_header(name, "This header is given more than once.")
            attributes[name.removeprefix(PREFIX)] = _unquoted(text(value, name))
    _count(list(attributes), _in_header)
    _check(attributes, _in_header)
    known = Known(_values(attributes, call.header(b"content-type")), _places(attributes, _in_header))
    letter = letter_of(call, known)
    return content_of(letter, call.raw) if call.raw else letter


def _structured(call: Call[bytes]) -> Letter:
    """An event that is one JSON object; its data is a member of it."""
    given: _Data = _decode_data(call.raw)
    if len(call.raw) - len(bytes(given.data)) - len(bytes(given.data_base64)) > LARGEST_REST:
        raise at("", f"The members of an event besides its data have at most {LARGEST_REST} bytes.")
    members: dict[str, msgspec.Raw] = _decode_members(call.raw)
    _count([name for name in members if name not in DATA], step)
    attributes = {name: _attribute(name, raw) for name, raw in members.items() if name not in DATA}
    attributes = {name: value for name, value in attributes.items() if value is not None}
    _check(attributes, step)
    content_type = attributes.get("datacontenttype", "application/json" if "data" in members else None)
    places = {**_places(attributes, step), "content_type": "/datacontenttype"}
    letter = letter_of(call, Known(_values(attributes, content_type), places))
    data = _data(members, letter.envelope.content_type)
    return letter if data is None else content_of(letter, data)


def _data(members: Mapping[str, msgspec.Raw], content_type: str | None) -> bytes | None:
    """The bytes of an event's data; None where it has none."""
    if "data_base64" in members:
        if "data" in members:
            raise at("/data_base64", "Give data or data_base64, not both.")
        return base64_bytes(_text("data_base64", members["data_base64"]), "/data_base64")
    if "data" not in members:
        return None
    if says_json(content_type):
        return bytes(members["data"])
    return _text("data", members["data"]).encode()


def _values(attributes: Mapping[str, Any], content_type: Any) -> dict[str, Any]:
    """What an event says of the message that carries it."""
    return {
        "message_id": attributes["id"],
        "subject": attributes["type"],
        "content_type": content_type,
        "properties": {PROPERTY_PREFIX + name: value for name, value in attributes.items()},
    }


def _places(attributes: Mapping[str, Any], where: Callable[[str], str]) -> dict[str, str]:
    """Where in the request it says so; of properties that are too large together the largest is named."""
    largest = max(attributes, key=lambda name: len(str(attributes[name])))
    return {"message_id": where("id"), "subject": where("type"), "properties": where(largest)}


def _check(attributes: Mapping[str, Any], where: Callable[[str], str]) -> None:
    """Refuse with `InvalidRequest` attributes that the specification does not allow (CloudEvents 1.0.2, 3)."""
    for name in REQUIRED:
        if name not in attributes:
            raise at(where(name), f"The attribute {name} is missing.")
    for name, value in attributes.items():
        if fault := _fault_in_name(name) or _fault_in_value(name, value):
            raise at(where(name), fault)


def _count(names: Sequence[str], where: Callable[[str], str]) -> None:
    """Refuse with `InvalidRequest` more attributes than a message has properties."""
    if len(names) > MOST_PROPERTIES:
        raise at(where(names[MOST_PROPERTIES]), f"An event has at most {MOST_PROPERTIES} attributes.")


def _fault_in_name(name: str) -> str | None:
    if NAME.fullmatch(name) is None:
        return "The name of an attribute has lower-case letters and digits, and nothing else."
    if name in DATA:
        return f"No attribute is named {name}."
    return f"The name of an attribute has at most {LONGEST_NAME} characters." if len(name) > LONGEST_NAME else None


def _fault_in_value(name: str, value: Any) -> str | None:
    if isinstance(value, str) and len(value) > LARGEST_PROPERTIES:
        return f"An attribute has at most {LARGEST_PROPERTIES} characters."
    if isinstance(value, str) and NO_CHARACTERS.search(value):
        return "An attribute has no control characters, and no code points that Unicode gives to no character."
    if name not in TEXTS:
        return None
    if not isinstance(value, str) or not value:
        return f"The attribute {name} is a string that is not empty."
    form = FORMS.get(name)
    return None if form is None or form[0](value) else form[1]


def _is_uri(value: str) -> bool:
    found = URI_REFERENCE.fullmatch(value)
    return found is not None and found["scheme"] is not None


def _is_time(value: str) -> bool:
    """Whether this is a time of RFC 3339; the library alone would take some other ways to write one."""
    try:
        msgspec.convert(value, Moment)
    except msgspec.ValidationError:
        return False
    return TIME.fullmatch(value) is not None


FORMS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "specversion": (VERSION.__eq__, f"Only CloudEvents {VERSION} is understood."),
    "source": (URI_REFERENCE.fullmatch, "This is not a URI reference."),
    "dataschema": (_is_uri, "This is not a URI."),
    "time": (_is_time, "This is not a time as RFC 3339 writes it."),
}


def _attribute(name: str, raw: msgspec.Raw) -> Any:
    try:
        return _decode_attribute(raw)
    except msgspec.DecodeError:
        raise at(step(name), "An attribute of an event is a string, an integer of 32 bits, true or false.") from None


def _text(name: str, raw: msgspec.Raw) -> str:
    try:
        return _decode_text(raw)
    except msgspec.DecodeError:
        raise at(step(name), "Data that is not JSON is given as a string.") from None


def _in_header(name: str) -> str:
    """Where an attribute stands in binary mode; in structured mode it is a member of the body."""
    return f"#/header/{PREFIX}{name}"


def _unquoted(value: str) -> str:
    """A header's value as the HTTP binding writes it: perhaps in double quotes, and percent-encoded."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return unquote(value)


def _essence(call: Call[bytes]) -> str:
    return (call.header(b"content-type") or "").partition(";")[0].strip().lower()
