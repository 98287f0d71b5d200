"""The store of transactions, whose members wait for the commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from app.domain.instant import Duration
from app.domain.message import Draft
from app.domain.settlement import LockToken
from app.domain.transaction import Intent, JoinedIntent, NotedMember, Transaction, TransactionKey
from app.domain.transaction_refusals import MessageInTransaction, RollbackCause
from app.domain.work_unit import WorkUnit

JoinResult: TypeAlias = JoinedIntent | MessageInTransaction | None


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A transaction that has ended, and what its commit has done; None if it had ended before, or was rolled back."""

    transaction: Transaction
    unit: WorkUnit | None = None


class TransactionStore(Protocol):
    """Transactions. Each method that takes a key refuses with `TransactionNotFound` if its principal has no such one."""

    async def open(self, key: TransactionKey, duration: Duration, limit: int) -> Transaction:
        """Open a transaction until the store's now + `duration`. Refuses with `TooManyTransactions` if `limit` are open."""
        ...

    async def find(self, key: TransactionKey) -> Transaction:
        """Return a transaction as it is now."""
        ...

    async def members(self, transaction_id: str, after: int, limit: int) -> list[NotedMember]:
        """Return members at places above `after`, ascending. A transaction that has ended has none."""
        ...

    async def join_sends(self, key: TransactionKey, queue: str, drafts: Sequence[Draft]) -> None:
        """Note all drafts, for the queue of this name, in their order.

        Refuses with `TransactionEnded`, `TransactionRolledBack` or `TransactionFull`; then none is noted.
        """
        ...

    async def join_settlements(self, key: TransactionKey, queue: str, intents: Sequence[Intent]) -> list[JoinResult]:
        """Note settlements, each if its lock can be extended beyond the deadline; return a result for each.

        Takes effect under the fence of a renewal: None where it does not hold, or where another request holds the row.
        A settlement that this transaction has noted with the same outcome is a repeat. With another outcome, or in
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
        """Forget the members and store the cause, and the member with this token; a transaction that has ended stays."""
        ...

    async def roll_back_overdue(self) -> bool:
        """Roll back the open transaction whose deadline passed first; return whether there was one."""
        ...
