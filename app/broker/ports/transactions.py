"""Work units, and the transactions of clients, whose members wait for the commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from app.broker.ports.attempts import Attempt, AttemptResult
from app.domain.instant import Duration
from app.domain.message import Draft
from app.domain.settlement import LockToken
from app.domain.transaction import (
    Intent,
    JoinedIntent,
    MemberSummary,
    OwnedTransaction,
    Transaction,
    TransactionKey,
)
from app.domain.transaction_refusals import MessageInTransaction, RollbackCause
from app.domain.work_unit import WorkUnit, WorkUnitResult


class SettlementsFailed(Exception):
    """The fences of these settlements did not hold, or other statements hold the rows. The work unit had no effect."""

    def __init__(self, tokens: frozenset[LockToken]) -> None:
        super().__init__(f"{len(tokens)} settlements had no effect")
        self.tokens = tokens


class WorkUnitStore(Protocol):
    """Sends and settlements that take effect together."""

    async def execute(self, unit: WorkUnit, attempt: Attempt | None) -> AttemptResult[WorkUnitResult]:
        """Carry out the unit in one transaction, and store the result under the attempt if one is given.

        Raises `SettlementsFailed` if a settlement has no effect, and `QueueGone` as `send` does. Then nothing has
        changed. A draft that repeats a message id is not stored, as in `send`. Refuses as `send_or_replay` does.
        """
        ...

    async def find_execution_result(self, attempt: Attempt) -> WorkUnitResult | None:
        """Return the stored result of `execute`, or None. Refuses with `KeyReused`. Changes nothing."""
        ...


JoinResult: TypeAlias = JoinedIntent | MessageInTransaction | None


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A transaction that has ended. `unit` is what this commit carried out, None for a repeat or a rollback."""

    transaction: Transaction
    unit: WorkUnit | None = None


class TransactionStore(Protocol):
    """Transactions. Each method with a key refuses with `TransactionNotFound` if the principal has no such transaction."""

    async def open(self, key: TransactionKey, duration: Duration, limit: int, principal_limit: int) -> Transaction:
        """Open a transaction until the store's now + `duration`.

        Refuses with `TooManyTransactions` if `limit` are open, or `principal_limit` of this principal. Concurrent calls
        see the same counts, so together they may exceed a limit.
        """
        ...

    async def find(self, key: TransactionKey) -> Transaction:
        """Return a transaction as it is now."""
        ...

    async def list_open(self, limit: int) -> list[OwnedTransaction]:
        """Return the open transactions of all principals, those whose deadline comes first."""
        ...

    async def members(self, transaction_id: str, after: int, limit: int) -> list[MemberSummary]:
        """Return members at positions above `after`, ascending. A transaction that has ended has none."""
        ...

    async def join_sends(
        self, key: TransactionKey, sends: Sequence[tuple[str, Draft]], attempt: Attempt | None = None
    ) -> AttemptResult[list[str]]:
        """Add all drafts as members, each with the name of its queue, in order; return their message ids.

        With an attempt, a repeat adds nothing and returns the ids of the first try, also after the transaction has
        ended. Refuses with `KeyReused` as `SendingStore.send_or_replay` does, and with `TransactionEnded`,
        `TransactionRolledBack` or `TransactionFull`; then none is added.
        """
        ...

    async def find_join_result(self, attempt: Attempt) -> list[str] | None:
        """Return the message ids of the first try, None if there was none. Refuses with `KeyReused`."""
        ...

    async def join_settlements(self, key: TransactionKey, queue: str, intents: Sequence[Intent]) -> list[JoinResult]:
        """Add settlements whose locks can be extended beyond the deadline; return a result for each.

        Takes effect under the fence of a renewal: None where it does not hold, or where another request holds the row.
        A settlement that has joined this transaction with the same outcome is a repeat. With another outcome, or in
        another transaction, the result is `MessageInTransaction`. Refuses as `join_sends` does.
        """
        ...

    async def commit(self, key: TransactionKey) -> CommitResult:
        """Carry out all members as one work unit, and store the result, in one SQL transaction.

        A transaction that has ended stays as it is. One past its deadline, or whose message has expired, or whose queue is
        gone, is rolled back. Raises `SettlementsFailed` and `QueueGone` as `WorkUnitStore.execute` does; then nothing
        has changed.
        """
        ...

    async def roll_back(self, key: TransactionKey, cause: RollbackCause, token: LockToken | None = None) -> Transaction:
        """Delete the members, and store the cause and the member with this token. One that has ended stays as it is."""
        ...

    async def roll_back_overdue(self) -> bool:
        """Roll back the open transaction whose deadline passed first; return whether there was one."""
        ...
