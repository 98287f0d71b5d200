"""Amend: a holder's changes to the properties of the message it settles."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from app.domain.message import LARGEST_PROPERTIES, MOST_PROPERTIES
from app.domain.refusals import Fault, InvalidRequest

Scalar: TypeAlias = str | int | float | bool | None

_decode = msgspec.json.Decoder(dict[str, Scalar]).decode
_encode = msgspec.json.Encoder().encode


def amended(properties: bytes, changes: Mapping[str, Scalar]) -> bytes:
    """The properties with these names set anew, as JSON. Refuses with `InvalidRequest` above their limits."""
    merged = {**(_decode(properties) if properties else {}), **changes}
    encoded = _encode(merged)
    if len(merged) > MOST_PROPERTIES or len(encoded) > LARGEST_PROPERTIES:
        detail = f"A message has at most {MOST_PROPERTIES} properties in {LARGEST_PROPERTIES} bytes of JSON."
        raise InvalidRequest(faults=[Fault("/properties", detail)])
    return encoded
