"""The properties of a message with their types, as JSON has them: `true`, `"1"` and `1` differ."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

_TYPES = {'"': "text", "t": "true or false", "f": "true or false", "n": "null"}
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class TypedProperty:
    """One property: its value as it is written in JSON, and its type in words."""

    name: str
    value: str
    type: str


def typed_properties(stored: bytes) -> Sequence[TypedProperty]:
    """Return the properties of a stored message, in their order."""
    if not stored:
        return ()
    values = {name: bytes(raw).decode("utf-8", "replace").strip() for name, raw in _decode(stored).items()}
    return [TypedProperty(name, value, _TYPES.get(value[:1], "number")) for name, value in values.items()]
