"""Decode the settlements of a batch one at a time, so that an invalid one does not refuse the others."""

from collections.abc import Sequence

import msgspec

from app.api.endpoints.lock_actions import lock_duration, settlement_request
from app.broker.settling.settle import SettlementRequest
from app.domain.instant import Duration
from app.domain.queue import Queue
from app.domain.refusals import Refusal, invalid_at
from app.domain.settlement import LockToken
from app.http.decoding import entry_decoder
from app.wire.field_types import LockTokenText
from app.wire.settlements import RenewSettlement, Settlement

_decode_settlement = entry_decoder(Settlement)


class LockRenewal(msgspec.Struct, frozen=True):
    """A renewal for this duration; None is that of the queue."""

    token: LockToken
    duration: Duration | None


class SettlementEntry(msgspec.Struct, frozen=True):
    """A settlement or renewal, and the token of its lock as the client sent it."""

    lock_token: str
    request: SettlementRequest | LockRenewal


class MalformedSettlement(msgspec.Struct, frozen=True):
    """The refusal of an invalid settlement, and its token if it has one."""

    lock_token: str | None
    refusal: Refusal


def read_settlements(
    queue: Queue, raw_settlements: Sequence[msgspec.Raw]
) -> list[SettlementEntry | MalformedSettlement]:
    """Return each settlement, or the refusal that a single request would get, with pointers into that settlement.

    Of several settlements with the same token, only the first is carried out.
    """
    indexes: dict[LockToken, int] = {}
    entries: list[SettlementEntry | MalformedSettlement] = []
    for index, raw in enumerate(raw_settlements):
        entry = _read_settlement(queue, bytes(raw))
        if isinstance(entry, SettlementEntry) and indexes.setdefault(entry.request.token, index) != index:
            detail = (
                f"Settlement {indexes[entry.request.token]} of this batch, counted from 0, has the same lock token."
            )
            entry = MalformedSettlement(entry.lock_token, invalid_at("/lock_token", detail))
        entries.append(entry)
    return entries


class _LockTokenOnly(msgspec.Struct):
    """The token of an invalid settlement."""

    lock_token: LockTokenText | None = None


def _read_settlement(queue: Queue, raw: bytes) -> SettlementEntry | MalformedSettlement:
    try:
        settlement: Settlement = _decode_settlement(raw)
        return SettlementEntry(settlement.lock_token, _request(queue, settlement))
    except Refusal as refusal:
        return MalformedSettlement(_lock_token_of(raw), refusal.as_result())


def _request(queue: Queue, settlement: Settlement) -> SettlementRequest | LockRenewal:
    token = LockToken.parse(settlement.lock_token)
    if isinstance(settlement, RenewSettlement):
        return LockRenewal(token, lock_duration(settlement))
    return settlement_request(queue, token, settlement)


def _lock_token_of(raw: bytes) -> str | None:
    try:
        return msgspec.json.decode(raw, type=_LockTokenOnly).lock_token
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
