"""The settlements of a batch, read one by one, so that one that is not well formed is refused alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from app.api.decoding import body_decoder
from app.domain.refusals import Refusal
from app.domain.settlement import LockToken
from app.wire.locks import AbandonLock, DeadLetterLock, DeferLock, Settlement
from app.wire.properties import read_properties
from app.wire.shapes import LockTokenText, PropertyValue
from app.wire.values import at

Changes: TypeAlias = dict[str, PropertyValue] | None
"""What a settlement changes of the message's properties."""

_decode_settlement = body_decoder(Settlement)


@dataclass(frozen=True, slots=True)
class Entry:
    """A settlement, the lock that it is of, and what it changes of the properties."""

    settlement: Settlement
    token: LockToken
    changes: Changes

    @property
    def lock_token(self) -> str:
        """The token as it was given."""
        return self.settlement.lock_token


@dataclass(frozen=True, slots=True)
class Malformed:
    """A settlement that breaks a rule by itself, and the refusal that it has; its token where it gives one."""

    lock_token: str | None
    refusal: Refusal


def read_entries(written: Sequence[msgspec.Raw]) -> list[Entry | Malformed]:
    """Each settlement, or the refusal that a single call would have, with pointers into that settlement.

    Of several with one token the first is carried out.
    """
    places: dict[LockToken, int] = {}
    entries: list[Entry | Malformed] = []
    for place, one in enumerate(written):
        entry = _read(bytes(one))
        if isinstance(entry, Entry) and places.setdefault(entry.token, place) != place:
            detail = f"Settlement {places[entry.token]} of this batch, counted from 0, has the same lock token."
            entry = Malformed(entry.lock_token, at("/lock_token", detail))
        entries.append(entry)
    return entries


def changes_of(body: AbandonLock | DeadLetterLock | DeferLock) -> Changes:
    """What a settlement changes of the message's properties. Refuses with `InvalidRequest`."""
    return read_properties(body.properties, str)


class _Given(msgspec.Struct):
    """All that is looked for in a settlement that cannot be read."""

    lock_token: LockTokenText | None = None


def _read(written: bytes) -> Entry | Malformed:
    try:
        settlement: Settlement = _decode_settlement(written)
        token = LockToken.parse(settlement.lock_token)
        has_changes = isinstance(settlement, AbandonLock | DeadLetterLock | DeferLock)
        return Entry(settlement, token, changes_of(settlement) if has_changes else None)
    except Refusal as refusal:
        return Malformed(_given_token(written), refusal)


def _given_token(written: bytes) -> str | None:
    try:
        return msgspec.json.decode(written, type=_Given).lock_token
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
