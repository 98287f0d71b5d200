"""What a store requires of an engine: sessions, and a database that lends them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from app.domain.refusals import Overloaded, StoreUnavailable
from app.runtime.coalescer import Coalescer
from app.store.shared.rows import Row

Entry = TypeVar("Entry")
Result = TypeVar("Result")

BatchObserver: TypeAlias = Callable[[str, int], None]
"""Receives the name of each statement that ran and the number of callers it served."""


class NotWritable(StoreUnavailable):
    """The database accepts no writes at present, or does not answer. Its other connections are no better than this one."""


class DiskNotWritable(NotWritable):
    """The disk of the database cannot be written. Its server still reads and stays the primary, so connections are kept."""


class LockWaitTimeout(StoreUnavailable):
    """Another transaction has held a row for longer than a statement waits."""


class GroupInUse(StoreUnavailable):
    """Another request holds the group of this message at present. This request had no effect."""

    # Another transaction has held the group, or blocked messages of it, for longer than a statement waits.


class StoreClosed(StoreUnavailable):
    """The store is closed."""


class TransactionInterrupted(StoreUnavailable):
    """The store was closed in the middle of a transaction."""


class StoreCoalescer(Coalescer[Entry, Result]):
    """Gathers the requests of one verb of a store. Its callers get the errors of the store."""

    batch_errors = (StoreUnavailable,)
    # The callers that share the transaction need other groups.
    entry_errors = (GroupInUse,)
    closed_error = StoreClosed
    full_error = Overloaded
    interrupted_error = TransactionInterrupted


class SqlSession(Protocol):
    """Runs named statements, each with its parameters by name."""

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """Return the rows of a statement that yields rows; columns are read by position."""
        ...

    async def change(self, name: str, /, **values: Any) -> int:
        """Run a statement that yields no rows. Return how many rows it matched, including rows left unchanged."""
        ...


Work: TypeAlias = Callable[[SqlSession], Awaitable[Result]]
"""The statements of one transaction. The work awaits only the session and has no other effect, so it can run again."""


class Database(SqlSession, Protocol):
    """The connections to one database. `fetch` and `change` called here are transactions of their own. The engine
    supplies `@now`.

    An error that a repeat can heal (deadlock, serialization failure) is retried a few times. An error that shows that
    the database cannot answer is raised as `StoreUnavailable`.
    """

    async def transaction(self, work: Work[Result]) -> Result:
        """Run the work in one transaction. It is committed durably when it returns and undone when it raises."""
        ...


class ReplicatedRecords:
    """Waits for the synchronous standbys of a database, for answers that read a change and make none."""

    _database: Database

    async def await_replication(self) -> None:
        """See `QueueStore`."""
        await self._database.fetch("await_replication")
