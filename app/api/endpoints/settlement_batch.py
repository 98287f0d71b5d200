"""Decode the settlements of a batch one at a time, so that an invalid one does not refuse the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from app.api.http.decoding import body_decoder
from app.domain.refusals import Refusal, invalid_at
from app.domain.settlement import LockToken
from app.wire.field_types import LockTokenText, PropertyValue
from app.wire.properties import decode_properties
from app.wire.settlements import AbandonLock, DeadLetterLock, DeferLock, Settlement

PropertyChanges: TypeAlias = dict[str, PropertyValue] | None
"""The changes that a settlement makes to the properties of its message."""

_decode_settlement = body_decoder(Settlement)


@dataclass(frozen=True, slots=True)
class SettlementEntry:
    """A settlement, the token of its lock, and its changes to the properties."""

    settlement: Settlement
    token: LockToken
    property_changes: PropertyChanges

    @property
    def lock_token(self) -> str:
        """The token as the client sent it."""
        return self.settlement.lock_token


@dataclass(frozen=True, slots=True)
class MalformedSettlement:
    """The refusal of an invalid settlement, and its token if it has one."""

    lock_token: str | None
    refusal: Refusal


def read_settlements(raw_settlements: Sequence[msgspec.Raw]) -> list[SettlementEntry | MalformedSettlement]:
    """Return each settlement, or the refusal that a single request would get, with pointers into that settlement.

    Of several settlements with the same token, only the first is carried out.
    """
    indexes: dict[LockToken, int] = {}
    entries: list[SettlementEntry | MalformedSettlement] = []
    for index, raw in enumerate(raw_settlements):
        entry = _read_settlement(bytes(raw))
        if isinstance(entry, SettlementEntry) and indexes.setdefault(entry.token, index) != index:
            detail = f"Settlement {indexes[entry.token]} of this batch, counted from 0, has the same lock token."
            entry = MalformedSettlement(entry.lock_token, invalid_at("/lock_token", detail))
        entries.append(entry)
    return entries


def property_changes(body: AbandonLock | DeadLetterLock | DeferLock) -> PropertyChanges:
    """Return the changes to the properties. Refuses with `InvalidRequest`."""
    return decode_properties(body.properties, str)


class _LockTokenOnly(msgspec.Struct):
    """The token of an invalid settlement."""

    lock_token: LockTokenText | None = None


def _read_settlement(raw_settlements: bytes) -> SettlementEntry | MalformedSettlement:
    try:
        settlement: Settlement = _decode_settlement(raw_settlements)
        token = LockToken.parse(settlement.lock_token)
        has_changes = isinstance(settlement, AbandonLock | DeadLetterLock | DeferLock)
        return SettlementEntry(settlement, token, property_changes(settlement) if has_changes else None)
    except Refusal as refusal:
        return MalformedSettlement(_lock_token_of(raw_settlements), refusal)


def _lock_token_of(raw_settlements: bytes) -> str | None:
    try:
        return msgspec.json.decode(raw_settlements, type=_LockTokenOnly).lock_token
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
