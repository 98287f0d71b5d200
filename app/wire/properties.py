"""Properties as requests write them: kept unread at first, so that their size is known before anything is built."""

from collections.abc import Callable, Mapping
from typing import Annotated, TypeAlias

import msgspec

from app.domain.message import MAX_PROPERTIES, MAX_PROPERTIES_BYTES
from app.wire.decode_errors import invalid_request
from app.wire.field_types import Properties, PropertyValue
from app.wire.values import invalid_at, pointer_segment

MAX_RAW_PROPERTIES_BYTES = 8 * MAX_PROPERTIES_BYTES
"""Bytes of properties in a request. Escapes and white space can make them several times larger than they are."""
TOO_LARGE = f"A message has at most {MAX_PROPERTIES} properties in {MAX_PROPERTIES_BYTES} bytes of JSON."

_SCHEMA = msgspec.json.schema(Properties)
StoredProperties: TypeAlias = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema=_SCHEMA)]
"""Properties as they were checked when they came; they go out as the bytes they are."""
RawProperties: TypeAlias = Annotated[
    msgspec.Raw, msgspec.Meta(extra_json_schema={"anyOf": [_SCHEMA, {"type": "null"}]})
]
"""Properties of a request, or null."""
NULL = b"null"


_decode = msgspec.json.Decoder(Properties).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def raw_properties(properties: Mapping[str, object]) -> msgspec.Raw:
    """Properties that were not written as JSON, in the form of those that were."""
    return msgspec.Raw(_encode(properties))


def decode_properties(
    raw_value: msgspec.Raw | msgspec.UnsetType, locate: Callable[[str], str] = str
) -> dict[str, PropertyValue] | None:
    """The properties of a request, None where there are none or null.

    Refuses with `InvalidRequest`; `locate` says where in the request a pointer is.
    """
    if raw_value is msgspec.UNSET:
        return None
    raw = bytes(raw_value)
    if raw == NULL:
        return None
    if len(raw) > MAX_RAW_PROPERTIES_BYTES:
        raise invalid_at(locate("/properties"), TOO_LARGE)
    try:
        return _decode(raw)
    except msgspec.ValidationError as error:
        (fault,) = invalid_request(error).field_errors
        raise invalid_at(locate("/properties" + _first_invalid_pointer(raw)), fault.detail) from None


def encode_properties(properties: Mapping[str, PropertyValue], pointer: str) -> bytes:
    """Properties as they are stored; empty where there are none."""
    if not properties:
        return b""
    encoded = _encode(properties)
    if len(properties) > MAX_PROPERTIES or len(encoded) > MAX_PROPERTIES_BYTES:
        raise invalid_at(pointer, TOO_LARGE)
    return encoded


def _first_invalid_pointer(raw: bytes) -> str:
    """What leads to the first wrong property; empty where the object itself is wrong."""
    try:
        members = _decode_members(raw)
    except msgspec.DecodeError:
        return ""
    # With more of them than a message may have, the object itself is wrong.
    names = members if len(members) <= MAX_PROPERTIES else ()
    return next((pointer_segment(name) for name in names if _is_invalid(name, members[name])), "")


def _is_invalid(name: str, value: msgspec.Raw) -> bool:
    try:
        _decode(_encode({name: value}))
    except msgspec.DecodeError:
        return True
    return False
