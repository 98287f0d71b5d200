"""Properties as requests write them: kept unread at first, so that their size is known before anything is built."""

from collections.abc import Callable, Mapping
from typing import Annotated, TypeAlias

import msgspec

from app.domain.message import LARGEST_PROPERTIES, MOST_PROPERTIES
from app.wire.complaints import invalid
from app.wire.shapes import Properties, PropertyValue
from app.wire.values import at, step

LARGEST_WRITTEN = 8 * LARGEST_PROPERTIES
"""Bytes of properties in a request. Escapes and white space can make them several times larger than they are."""
TOO_LARGE = f"A message has at most {MOST_PROPERTIES} properties in {LARGEST_PROPERTIES} bytes of JSON."

_SCHEMA = msgspec.json.schema(Properties)
StoredProperties: TypeAlias = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema=_SCHEMA)]
"""Properties as they were checked when they came; they go out as the bytes they are."""
WrittenProperties: TypeAlias = Annotated[
    msgspec.Raw, msgspec.Meta(extra_json_schema={"anyOf": [_SCHEMA, {"type": "null"}]})
]
"""Properties of a request, or null."""
NULL = b"null"


_decode = msgspec.json.Decoder(Properties).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def written_properties(properties: Mapping[str, object]) -> msgspec.Raw:
    """Properties that were not written as JSON, in the form of those that were."""
    return msgspec.Raw(_encode(properties))


def read_properties(
    written: msgspec.Raw | msgspec.UnsetType, locate: Callable[[str], str] = str
) -> dict[str, PropertyValue] | None:
    """The properties of a request, None where there are none or null.

    Refuses with `InvalidRequest`; `locate` says where in the request a pointer is.
    """
    if written is msgspec.UNSET:
        return None
    raw = bytes(written)
    if raw == NULL:
        return None
    if len(raw) > LARGEST_WRITTEN:
        raise at(locate("/properties"), TOO_LARGE)
    try:
        return _decode(raw)
    except msgspec.ValidationError as error:
        (fault,) = invalid(error).faults
        raise at(locate("/properties" + _wrong_name(raw)), fault.detail) from None


def property_bytes(properties: Mapping[str, PropertyValue], pointer: str) -> bytes:
    """Properties as they are stored; empty where there are none."""
    if not properties:
        return b""
    encoded = _encode(properties)
    if len(properties) > MOST_PROPERTIES or len(encoded) > LARGEST_PROPERTIES:
        raise at(pointer, TOO_LARGE)
    return encoded


def _wrong_name(raw: bytes) -> str:
    """What leads to the first wrong property; empty where the object itself is wrong."""
    try:
        members = _decode_members(raw)
    except msgspec.DecodeError:
        return ""
    # With more of them than a message may have, the object itself is wrong.
    names = members if len(members) <= MOST_PROPERTIES else ()
    return next((step(name) for name in names if _is_wrong(name, members[name])), "")


def _is_wrong(name: str, value: msgspec.Raw) -> bool:
    try:
        _decode(_encode({name: value}))
    except msgspec.DecodeError:
        return True
    return False
