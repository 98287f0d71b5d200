"""Properties in requests: not decoded at first, so that their size is checked before any object is built."""

from collections.abc import Callable, Mapping
from typing import Annotated, TypeAlias

import msgspec

from app.domain.message import MAX_PROPERTIES, MAX_PROPERTIES_BYTES, TOO_MANY_PROPERTIES, check_properties
from app.domain.refusals import invalid_at
from app.wire.decode_errors import pointer_and_detail
from app.wire.field_types import Properties, PropertyValue
from app.wire.values import pointer_segment

MAX_RAW_PROPERTIES_BYTES = 8 * MAX_PROPERTIES_BYTES
"""Bytes of properties in a request. Escapes and white space can make them several times larger than when stored."""

_SCHEMA = msgspec.json.schema(Properties)
StoredProperties: TypeAlias = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema=_SCHEMA)]
"""Properties that were checked when they were sent; responses copy their bytes."""
RawProperties: TypeAlias = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema=_SCHEMA)]
"""Properties of a request. Null is accepted, and means none."""
PropertyChanges: TypeAlias = Annotated[
    msgspec.Raw, msgspec.Meta(extra_json_schema={"anyOf": [_SCHEMA, {"type": "null"}]})
]
"""Changes to properties that a request can see: they are merged, and null removes all."""
NULL = b"null"


_decode = msgspec.json.Decoder(Properties).decode
_decode_stored = msgspec.json.Decoder(dict[str, PropertyValue]).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def raw_properties(properties: Mapping[str, object]) -> msgspec.Raw:
    """Encode properties that did not come as JSON (but in headers) like those that did."""
    return msgspec.Raw(_encode(properties))


def decode_properties(
    raw_value: msgspec.Raw | msgspec.UnsetType, locate: Callable[[str], str] = str
) -> dict[str, PropertyValue] | None:
    """Decode the properties of a request; return None if they are absent or null.

    Refuses with `InvalidRequest`; `locate` converts a pointer to one in the whole request.
    """
    if raw_value is msgspec.UNSET:
        return None
    raw = bytes(raw_value)
    if raw == NULL:
        return None
    if len(raw) > MAX_RAW_PROPERTIES_BYTES:
        raise invalid_at(locate("/properties"), TOO_MANY_PROPERTIES)
    try:
        return _decode(raw)
    except msgspec.ValidationError as error:
        _, detail = pointer_and_detail(str(error), Properties, "`properties`")
        raise invalid_at(locate("/properties" + _first_invalid_pointer(raw)), detail) from None


def properties_of(stored: bytes) -> dict[str, PropertyValue]:
    """Return the properties of a stored message."""
    return _decode_stored(stored) if stored else {}


def encode_properties(properties: Mapping[str, PropertyValue], pointer: str) -> bytes:
    """Encode properties for the store; empty if none are given. Refuses with `InvalidRequest` above the limits."""
    if not properties:
        return b""
    encoded = _encode(properties)
    check_properties(len(properties), len(encoded), pointer)
    return encoded


def _first_invalid_pointer(raw: bytes) -> str:
    """Return the pointer to the first invalid property; empty if the object itself is invalid."""
    try:
        members = _decode_members(raw)
    except msgspec.DecodeError:
        return ""
    # With more properties than a message may have, the object itself is invalid.
    names = members if len(members) <= MAX_PROPERTIES else ()
    return next((pointer_segment(name) for name in names if _is_invalid(name, members[name])), "")


def _is_invalid(name: str, value: msgspec.Raw) -> bool:
    try:
        _decode(_encode({name: value}))
    except msgspec.DecodeError:
        return True
    return False
