"""Open transactions in requests and responses."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from app.domain.instant import Duration, from_seconds, to_seconds
from app.domain.transaction import (
    DEFAULT_TIMEOUT,
    MAX_TIMEOUT,
    MIN_TIMEOUT,
    MemberSummary,
    Transaction,
    TransactionState,
)
from app.domain.transaction_refusals import RollbackCause
from app.wire.field_types import Page, Timestamp
from app.wire.problems import TransactionMember, transaction_member
from app.wire.sending import SentMessage
from app.wire.settlements import OUTCOME_NAMES, SettledOutcome, SettlementDone, settlement_done
from app.wire.times import to_wire

TransactionStateName: TypeAlias = Literal["open", "committed", "rolled_back"]
STATE_NAMES: dict[TransactionState, TransactionStateName] = {
    TransactionState.OPEN: "open",
    TransactionState.COMMITTED: "committed",
    TransactionState.ROLLED_BACK: "rolled_back",
}
TimeoutSeconds: TypeAlias = Annotated[
    float,
    msgspec.Meta(
        ge=to_seconds(MIN_TIMEOUT),
        le=to_seconds(MAX_TIMEOUT),
        description="How long the transaction may stay open. After it, the transaction is rolled back.",
    ),
]


class OpenTransaction(msgspec.Struct, forbid_unknown_fields=True):
    """A transaction to open."""

    timeout_seconds: TimeoutSeconds = to_seconds(DEFAULT_TIMEOUT)

    def duration(self) -> Duration:
        """Return how long it may stay open."""
        return from_seconds(self.timeout_seconds)


class EndTransaction(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters of a commit or a rollback: none."""


class TransactionView(msgspec.Struct, kw_only=True):
    """A transaction."""

    id: str
    state: TransactionStateName
    expires_at: Timestamp


class CommittedTransaction(TransactionView, kw_only=True):
    """A transaction that has taken effect: the results of its settlements and of its sends, each in the order of joining."""

    settlements: list[SettlementDone]
    sends: list[SentMessage]


class MemberView(TransactionMember, kw_only=True, omit_defaults=True):
    """A member that waits for the commit."""

    bytes: int
    outcome: SettledOutcome | None = None


class TransactionDetails(TransactionView, kw_only=True):
    """A transaction and a page of its members."""

    cause: RollbackCause | None
    member: TransactionMember | None
    member_count: int
    member_bytes: int
    items: list[MemberView]
    next_cursor: str | None


class BrowseMembers(Page):
    """A page of the members."""


def transaction_view(transaction: Transaction) -> TransactionView:
    """Build the JSON of a transaction."""
    return TransactionView(
        id=transaction.id, state=STATE_NAMES[transaction.state], expires_at=to_wire(transaction.expires_at)
    )


def committed_transaction(transaction: Transaction) -> CommittedTransaction:
    """Build the JSON of a transaction that is committed. Raises `ValueError` if it is not."""
    if transaction.result is None:
        raise ValueError(f"transaction {transaction.id} is not committed")
    return CommittedTransaction(
        id=transaction.id,
        state=STATE_NAMES[transaction.state],
        expires_at=to_wire(transaction.expires_at),
        settlements=[settlement_done(settled) for settled in transaction.result.settled],
        sends=[SentMessage.of(receipt) for receipt in transaction.result.receipts],
    )


def transaction_details(transaction: Transaction, members: list[MemberSummary], limit: int) -> TransactionDetails:
    """Build the JSON of a transaction from up to `limit` + 1 of its members."""
    shown = members[:limit]
    return TransactionDetails(
        id=transaction.id,
        state=STATE_NAMES[transaction.state],
        expires_at=to_wire(transaction.expires_at),
        cause=transaction.cause,
        member=transaction_member(transaction.member),
        member_count=transaction.member_count,
        member_bytes=transaction.member_bytes,
        items=[_member_view(member) for member in shown],
        next_cursor=str(shown[-1].name.place) if len(members) > limit else None,
    )


def _member_view(member: MemberSummary) -> MemberView:
    name = member.name
    return MemberView(
        place=name.place,
        queue=name.queue,
        message_id=name.message_id,
        sequence_number=name.sequence_number,
        bytes=member.member_bytes,
        outcome=None if member.outcome is None else OUTCOME_NAMES[member.outcome],
    )
