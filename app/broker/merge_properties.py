"""Merge a holder's changes into the properties of the message that it settles."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from app.domain.message import MAX_PROPERTIES, MAX_PROPERTIES_BYTES
from app.domain.refusals import FieldError, InvalidRequest

Scalar: TypeAlias = str | int | float | bool | None

_decode = msgspec.json.Decoder(dict[str, Scalar]).decode
_encode = msgspec.json.Encoder().encode


def merge_properties(properties: bytes, changes: Mapping[str, Scalar]) -> bytes:
    """Return the properties with these changes, as JSON. Refuses with `InvalidRequest` above the limits."""
    merged = {**(_decode(properties) if properties else {}), **changes}
    encoded = _encode(merged)
    if len(merged) > MAX_PROPERTIES or len(encoded) > MAX_PROPERTIES_BYTES:
        detail = f"A message has at most {MAX_PROPERTIES} properties in {MAX_PROPERTIES_BYTES} bytes of JSON."
        raise InvalidRequest(field_errors=[FieldError("/properties", detail)])
    return encoded
