"""Transactions: sends and settlements that take effect together at a commit.

A send or settlement joins a transaction as a member, and the store keeps members apart from messages. So no receiver can
see the message of a send before the commit. A settlement that joins changes only its lock, which then lasts beyond the
deadline of the transaction.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from app.domain.instant import HOUR, MINUTE, SECOND, Duration, Instant
from app.domain.message import Draft
from app.domain.queue import Queue
from app.domain.sending import fit_draft
from app.domain.settlement import MAX_GENERATION, NO_EXPIRED_GENERATION, Fence, Move, Outcome, Settlement
from app.domain.transaction_refusals import (
    MemberName,
    RollbackCause,
    TransactionEnded,
    TransactionFull,
    TransactionRolledBack,
)
from app.domain.weight import MESSAGE_OVERHEAD_BYTES, weight_of
from app.domain.work_unit import WorkUnit, WorkUnitResult

DEFAULT_TIMEOUT: Duration = MINUTE
MAX_TIMEOUT: Duration = 10 * MINUTE
MIN_TIMEOUT: Duration = SECOND

MAX_MEMBERS = 10_000
MAX_TRANSACTION_BYTES = 64 << 20
"""The largest weight of all members together. A commit holds them in memory."""

MAX_OPEN_TRANSACTIONS = 1000
"""In one database. Together with the longest timeout it bounds the members that are stored and never committed."""

OPEN_TRANSACTIONS_PER_PRINCIPAL = MAX_OPEN_TRANSACTIONS // 10
"""By default, so that one client leaves room for the others."""

LOCK_MARGIN: Duration = 5 * SECOND
"""How much longer than its transaction the lock of a settlement lasts. So the deadline passes before the lock ends."""

OUTCOME_RETENTION: Duration = HOUR
"""How long the outcome of a transaction is kept: longer than any client repeats a commit."""


class TransactionState(IntEnum):
    """The state of a transaction. The numbers are stored."""

    OPEN = 1
    COMMITTED = 2
    ROLLED_BACK = 3

    @property
    def label(self) -> str:
        """The name in JSON."""
        return self.name.lower()


class TransactionKey(msgspec.Struct, frozen=True):
    """A transaction as its owner names it: no other principal finds it."""

    id: str
    principal: str


class Transaction(msgspec.Struct, frozen=True):
    """A stored transaction.

    `member_count` and `member_bytes` count what has joined. `result` is set by its commit and a repeat of that; other
    reads leave it out, because it may have megabytes. `cause` is set once it is rolled back, and `member` if one member
    was the cause. `read_at` is the store's clock when it was read.
    """

    id: str
    state: TransactionState
    opened_at: Instant
    expires_at: Instant
    member_count: int
    member_bytes: int
    result: WorkUnitResult | None
    cause: RollbackCause | None
    member: MemberName | None
    read_at: Instant

    @property
    def is_overdue(self) -> bool:
        """Whether it is open past its deadline, so that it can only be rolled back."""
        return self.state is TransactionState.OPEN and self.expires_at <= self.read_at

    def rolled_back(self) -> TransactionRolledBack:
        """Build the refusal of a request that comes after the rollback, or after the deadline."""
        return TransactionRolledBack(self.cause or RollbackCause.TIMEOUT, self.member)

    def check_joinable(self) -> None:
        """Refuse with `TransactionEnded` or `TransactionRolledBack` unless members can still join."""
        if self.state is TransactionState.COMMITTED:
            raise TransactionEnded
        if self.state is TransactionState.ROLLED_BACK or self.is_overdue:
            raise self.rolled_back()

    def check_room(self, weights: Sequence[int]) -> None:
        """Refuse with `TransactionFull` if members of these weights would exceed a limit."""
        if self.member_count + len(weights) > MAX_MEMBERS or self.member_bytes + sum(weights) > MAX_TRANSACTION_BYTES:
            raise TransactionFull


class OwnedTransaction(msgspec.Struct, frozen=True):
    """A transaction and the principal that opened it."""

    principal: str
    transaction: Transaction

    @property
    def key(self) -> TransactionKey:
        """The transaction as its owner names it."""
        return TransactionKey(self.transaction.id, self.principal)


class Intent(msgspec.Struct, frozen=True):
    """A settlement that joins a transaction, and the generation of its lock that the lock store knows to have expired."""

    settlement: Settlement
    expired_generation: int = NO_EXPIRED_GENERATION


class JoinedIntent(msgspec.Struct, frozen=True):
    """A settlement that waits for the commit; `replayed` if it joined before."""

    settlement: Settlement
    replayed: bool = False


class SendMember(msgspec.Struct, frozen=True):
    """A send that has joined: its draft, its earliest due time, and the end of its time to live."""

    place: int
    queue: str
    draft: Draft
    due_at: Instant
    expires_at: Instant | None

    @property
    def queue_id(self) -> int:
        """The queue that it is sent to."""
        return self.draft.queue_id

    @property
    def name(self) -> MemberName:
        """The name in responses."""
        return MemberName(self.place, self.queue, message_id=self.draft.envelope.message_id)


class SettlementMember(msgspec.Struct, frozen=True):
    """A settlement that has joined."""

    place: int
    queue: str
    settlement: Settlement

    @property
    def queue_id(self) -> int:
        """The queue of the delivery."""
        return self.settlement.queue_id

    @property
    def name(self) -> MemberName:
        """The name in responses."""
        number = self.settlement.token.sequence_number
        return MemberName(self.place, self.queue, sequence_number=number)


class MemberSummary(msgspec.Struct, frozen=True):
    """A member without its content: its name, the outcome of a settlement, and the bytes that it counts for."""

    name: MemberName
    outcome: Outcome | None
    member_bytes: int


class WaitingSettlement(msgspec.Struct, frozen=True):
    """The settlement of a locked message that waits for a commit, until the deadline of its transaction at the latest.

    `transaction_id` is None for everyone but the principal of the transaction.
    """

    outcome: Outcome
    expires_at: Instant
    transaction_id: str | None


Member: TypeAlias = SendMember | SettlementMember

WITHIN_TRANSACTION = Fence(NO_EXPIRED_GENERATION, MAX_GENERATION)
"""The fence of a settlement at the commit. Its lock was extended when it joined, so no evidence of an earlier renewal
names the generation of its row, and every later promise lasts beyond the deadline."""


def send_member(place: int, queue: str, draft: Draft, now: Instant) -> SendMember:
    """Return a draft as a member. Its due time becomes absolute, and its time to live begins then, as for a send now."""
    due_at = now + draft.delay if draft.delay is not None else draft.available_at
    due_at = max(now, due_at or now)
    expires_at = None if draft.ttl is None else due_at + draft.ttl
    return SendMember(place, queue, replace(draft, available_at=None, delay=None, ttl=None), due_at, expires_at)


class Rollback(msgspec.Struct, frozen=True):
    """Why a transaction is rolled back, and the member that is the cause, if one is."""

    cause: RollbackCause
    member: MemberName | None = None


def plan_commit(members: Sequence[Member], queues: Mapping[int, Queue], now: Instant) -> WorkUnit | Rollback:
    """Return the work unit of a commit, in the order of joining, by the current settings of the queues.

    Returns a `Rollback` if the queue of a send was deleted or its message has expired (S1.30).
    """
    settlements: list[Settlement] = []
    drafts: list[Draft] = []
    for member in members:
        queue = queues.get(member.queue_id)
        if isinstance(member, SettlementMember):
            settlements.append(_committed_settlement(member, queue))
        elif queue is None:
            return Rollback(RollbackCause.QUEUE_GONE, member.name)
        elif member.expires_at is not None and member.expires_at <= now:
            return Rollback(RollbackCause.MESSAGE_EXPIRED, member.name)
        else:
            drafts.append(_committed_draft(member, queue, now))
    return WorkUnit(settlements, drafts)


def _committed_settlement(member: SettlementMember, queue: Queue | None) -> Settlement:
    # A unit always admits the next messages of the groups that it leaves.
    return replace(
        member.settlement,
        fence=WITHIN_TRANSACTION,
        is_in_group=True,
        keeps_history=queue is not None and queue.settings.history,
    )


def _committed_draft(member: SendMember, queue: Queue, now: Instant) -> Draft:
    return replace(
        fit_draft(member.draft, queue),
        available_at=member.due_at if member.due_at > now else None,
        ttl=None if member.expires_at is None else member.expires_at - max(now, member.due_at),
    )


def lock_extension(transaction: Transaction) -> Duration:
    """Return how long the lock of a settlement that joins must last from now."""
    return transaction.expires_at + LOCK_MARGIN - transaction.read_at


def settlement_weight(settlement: Settlement) -> int:
    """Return the bytes that a settlement counts for."""
    properties = settlement.properties if isinstance(settlement, Move) else None
    return MESSAGE_OVERHEAD_BYTES + len(properties or b"")


def send_weight(draft: Draft) -> int:
    """Return the bytes that a send counts for."""
    return weight_of(draft)
