"""The settlements of a batch, read one by one, so that one that is not well formed is refused alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from app.api.http.decoding import body_decoder
from app.domain.refusals import Refusal
from app.domain.settlement import LockToken
from app.wire.field_types import LockTokenText, PropertyValue
from app.wire.properties import decode_properties
from app.wire.settlements import AbandonLock, DeadLetterLock, DeferLock, Settlement
from app.wire.values import invalid_at

PropertyChanges: TypeAlias = dict[str, PropertyValue] | None
"""What a settlement changes of the message's properties."""

_decode_settlement = body_decoder(Settlement)


@dataclass(frozen=True, slots=True)
class SettlementEntry:
    """A settlement, the lock that it is of, and what it changes of the properties."""

    settlement: Settlement
    token: LockToken
    property_changes: PropertyChanges

    @property
    def lock_token(self) -> str:
        """The token as it was given."""
        return self.settlement.lock_token


@dataclass(frozen=True, slots=True)
class MalformedSettlement:
    """A settlement that breaks a rule by itself, and the refusal that it has; its token where it gives one."""

    lock_token: str | None
    refusal: Refusal


def read_settlements(raw_settlements: Sequence[msgspec.Raw]) -> list[SettlementEntry | MalformedSettlement]:
    """Each settlement, or the refusal that a single call would have, with pointers into that settlement.

    Of several with one token the first is carried out.
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
    """What a settlement changes of the message's properties. Refuses with `InvalidRequest`."""
    return decode_properties(body.properties, str)


class _LockTokenOnly(msgspec.Struct):
    """All that is looked for in a settlement that cannot be read."""

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
