"""Converts rows of transactions and of their members to domain values, and members to rows."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from app.domain.message import Draft
from app.domain.settlement import Move, Outcome, Removal, Settlement
from app.domain.transaction import (
    Member,
    MemberSummary,
    SendMember,
    SettlementMember,
    Transaction,
    TransactionState,
    send_weight,
    settlement_weight,
)
from app.domain.transaction_refusals import MemberName, RollbackCause
from app.store.shared.rows import Row

TRANSACTION_COLUMNS = (
    "id",
    "state",
    "opened_at",
    "expires_at",
    "member_count",
    "member_bytes",
    "cause",
    "member",
    "read_at",
)


def transaction(row: Row) -> Transaction:
    """Convert a row of `TRANSACTION_COLUMNS`. Its result is read apart: it may have megabytes, and only commits answer it."""
    transaction_id, state, opened_at, expires_at, member_count, size, cause, member, read_at = row
    return Transaction(
        transaction_id,
        TransactionState(state),
        opened_at,
        expires_at,
        member_count,
        size,
        None,
        None if cause is None else RollbackCause(cause),
        None if member is None else _decode_name(member),
        read_at,
    )


class StoredSettlement(msgspec.Struct, omit_defaults=True):
    """A settlement as column `content` stores it: one of the two."""

    removal: Removal | None = None
    move: Move | None = None


MEMBER_COLUMNS = (
    "place",
    "queue",
    "message_id",
    "due_at",
    "expires_at",
    "queue_id",
    "sequence_number",
    "lock_token",
    "outcome",
    "member_bytes",
    "content",
    "body",
)

_encode = msgspec.json.Encoder().encode
_decode_draft = msgspec.json.Decoder(Draft).decode
_decode_settlement = msgspec.json.Decoder(StoredSettlement).decode
_decode_name = msgspec.json.Decoder(MemberName).decode


def member(row: Row) -> Member:
    """Convert a row of `MEMBER_COLUMNS`."""
    place, queue, message_id, due_at, expires_at, *_, content, body = row
    if message_id is not None:
        return SendMember(place, queue, replace(_decode_draft(content), body=body), due_at, expires_at)
    stored = _decode_settlement(content)
    settlement = stored.removal or stored.move
    if settlement is None:
        raise ValueError("the content of a member is neither a send nor a settlement")
    return SettlementMember(place, queue, settlement)


def send_row(transaction_id: str, member: SendMember) -> Mapping[str, Any]:
    """Return a send that has joined as a row."""
    return {
        **_EMPTY,
        "transaction_id": transaction_id,
        "place": member.place,
        "queue": member.queue,
        "queue_id": member.queue_id,
        "message_id": member.draft.envelope.message_id,
        "due_at": member.due_at,
        "expires_at": member.expires_at,
        "member_bytes": send_weight(member.draft),
        "content": _encode(replace(member.draft, body=b"")).decode(),
        "body": member.draft.body,
    }


def settlement_row(transaction_id: str, member: SettlementMember) -> Mapping[str, Any]:
    """Return a settlement that has joined as a row."""
    settlement = member.settlement
    return {
        **_EMPTY,
        "transaction_id": transaction_id,
        "place": member.place,
        "queue": member.queue,
        "sequence_number": settlement.token.sequence_number,
        "lock_token": settlement.token.secret,
        "outcome": settlement.outcome.value,
        "member_bytes": settlement_weight(settlement),
        "content": _encode(_stored(settlement)).decode(),
    }


_EMPTY = dict.fromkeys(MEMBER_COLUMNS)


def _stored(settlement: Settlement) -> StoredSettlement:
    return (
        StoredSettlement(removal=settlement) if isinstance(settlement, Removal) else StoredSettlement(move=settlement)
    )


def member_summary(row: Row) -> MemberSummary:
    """Convert a row of place, queue, message id, sequence number, outcome and bytes."""
    place, queue, message_id, sequence_number, outcome, size = row
    name = MemberName(place, queue, message_id, sequence_number)
    return MemberSummary(name, None if outcome is None else Outcome(outcome), size)


def write_name(name: MemberName | None) -> str | None:
    """Return the value of column `member`."""
    return None if name is None else _encode(name).decode()
