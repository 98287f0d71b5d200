"""Merge a holder's changes into the properties of the message that it settles."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from app.broker.settle import PendingSettlement, SettlementRequest
from app.domain.message import check_properties
from app.domain.settlement import Move

Scalar: TypeAlias = str | int | float | bool | None

_decode = msgspec.json.Decoder(dict[str, Scalar]).decode
_encode = msgspec.json.Encoder().encode


def with_changed_properties(move: Move, changes: Mapping[str, Scalar] | None) -> SettlementRequest:
    """Return the settlement that makes this move and these changes."""
    if not changes:
        return move
    return PendingSettlement(
        move.token,
        move.outcome,
        lambda locked, _: replace(move, properties=merge_properties(locked.properties, changes)),
    )


def merge_properties(properties: bytes, changes: Mapping[str, Scalar]) -> bytes:
    """Return the properties with these changes, as JSON. Refuses with `InvalidRequest` above the limits."""
    merged = {**(_decode(properties) if properties else {}), **changes}
    encoded = _encode(merged)
    check_properties(len(merged), len(encoded), "/properties")
    return encoded
