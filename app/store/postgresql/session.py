"""One connection to PostgreSQL: its settings, named statements, transactions, and the meaning of its errors."""

import asyncio
from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs] (it has none, so `DriverConnection` below declares them)

from app.domain.refusals import StoreUnavailable
from app.store.pooled.pool import TransactionConflict
from app.store.shared.database import DiskNotWritable, LockWaitTimeout, NotWritable
from app.store.shared.rows import Row
from app.store.shared.statements import Statement

ANSWER_SECONDS = 20.0
"""A server that does not answer for this long counts as unavailable. No statement here takes a tenth of it."""

CLOSE_SECONDS = 2.0
UNSAFE_SETTINGS: Mapping[str, str] = {
    "fsync": "PostgreSQL runs with fsync = off: a power cut can destroy the whole database.",
    "full_page_writes": "PostgreSQL runs with full_page_writes = off: a power cut can damage tables.",
    "synchronous_commit": "PostgreSQL acknowledges commits early (synchronous_commit): acknowledged changes can be lost.",
}
"""Warnings about settings that can lose a commit."""


ERROR_MESSAGES: Mapping[str, tuple[type[BaseException], ...]] = {
    "The database does not answer.": (TimeoutError,),
    "The database refuses access.": (
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
    ),
    "The database accepts no more connections.": (asyncpg.TooManyConnectionsError,),
    "The database accepts no writes at present.": (
        asyncpg.ReadOnlySQLTransactionError,  # a standby, or a server that has become one
        asyncpg.TargetServerAttributeNotMatched,  # a standby, at connect
    ),
    "The disk of the database is full.": (asyncpg.DiskFullError,),
    "The disk of the database cannot be read or written.": (asyncpg.PostgresSystemError,),
    "The database is out of memory.": (asyncpg.InsufficientResourcesError,),
    "The database cancelled a statement that took too long.": (asyncpg.QueryCanceledError,),
    "The database cannot be reached.": (
        OSError,
        asyncpg.PostgresConnectionError,
        asyncpg.OperatorInterventionError,  # shutting down, crashed or starting
        asyncpg.InternalClientError,  # an idle connection has ended
        asyncpg.IdleInTransactionSessionTimeoutError,
    ),
}
"""Errors of the server's environment, with the text for clients; special before general. Any other error is a bug here.
The driver's own text names hosts, roles and rows, so clients do not see it."""

NOT_WRITABLE: Mapping[str, type[NotWritable]] = {
    "The database does not answer.": NotWritable,
    "The database accepts no writes at present.": NotWritable,
    "The disk of the database is full.": DiskNotWritable,
    "The disk of the database cannot be read or written.": DiskNotWritable,
}
"""The texts of errors that mean that no connection to this server can write."""

UNAVAILABLE_ERRORS: tuple[type[BaseException], ...] = tuple(
    kind for error_types in ERROR_MESSAGES.values() for kind in error_types
)
CONFLICTS = (
    asyncpg.TransactionRollbackError,  # deadlock, serialization
    asyncpg.InvalidCachedStatementError,  # the tables have changed since the statement was prepared
    asyncpg.UniqueViolationError,  # another transaction has stored the same key since the statement began
)

Result = TypeVar("Result")


class DriverConnection(Protocol):
    """The part of the driver's connection that is used here. The driver's own types say too little."""

    @property
    def is_in_doubt(self) -> bool: ...
    async def fetch(self, query: str, *args: Any) -> Sequence[Row]: ...
    async def execute(self, query: str, *args: Any) -> str: ...
    async def close(self) -> None: ...
    def terminate(self) -> None: ...
    def is_closed(self) -> bool: ...
    def is_in_transaction(self) -> bool: ...


class PreparedStatement:
    """A named statement in the driver's form."""

    __slots__ = ("names", "text")

    def __init__(self, statement: Statement) -> None:
        self.text, self.names = statement.with_numbered_params()

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the values in the order in which the text numbers them."""
        return [values[name] for name in self.names]


class PostgresqlSession:
    """A connection while a caller uses it."""

    def __init__(self, connection: DriverConnection, statements: Mapping[str, PreparedStatement]) -> None:
        self._connection = connection
        self._statements = statements
        self._is_answered = True

    @property
    def is_usable(self) -> bool:
        """Return whether another caller may use it."""
        return self._is_synchronized and not self._connection.is_in_transaction()

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """Return the rows of one named statement."""
        statement = self._statements[name]
        return await self._await_answer(self._connection.fetch(statement.text, *statement.arguments(values)))

    async def change(self, name: str, /, **values: Any) -> int:
        """Run one named statement. Return how many rows it matched."""
        statement = self._statements[name]
        done = await self._await_answer(self._connection.execute(statement.text, *statement.arguments(values)))
        return int(done.rpartition(" ")[2])

    async def begin(self) -> None:
        """Begin a transaction."""
        await self._await_answer(self._connection.execute("BEGIN"))

    async def commit(self) -> None:
        """Commit the transaction, unless it has ended. A connection that was closed meanwhile cannot tell, and refuses."""
        if self._connection.is_closed() or self._connection.is_in_transaction():
            await self._await_answer(self._connection.execute("COMMIT"))

    async def rollback(self) -> None:
        """Undo the transaction, unless it has ended or the server cannot be reached."""
        if self._is_synchronized and self._connection.is_in_transaction():
            await self._await_answer(self._connection.execute("ROLLBACK"))

    @property
    def _is_synchronized(self) -> bool:
        """Return whether the protocol state is known. It is not after a cancellation."""
        return self._is_answered and not self._connection.is_closed()

    async def close(self) -> None:
        """Close the connection with the protocol's goodbye."""
        with translate_errors():
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._connection.close()

    def terminate(self) -> None:
        """Close the connection at once, even during a statement."""
        self._connection.terminate()

    async def _await_answer(self, pending: Awaitable[Result]) -> Result:
        self._is_answered = False
        try:
            answer = await pending
        except Exception as error:
            self._is_answered = isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError)
            with translate_errors():
                if isinstance(error, asyncpg.InterfaceError) and self._connection.is_closed():
                    # The driver raises the same for a lost connection as for a value that it refuses.
                    raise ConnectionResetError("the connection is closed") from error
                raise
        if self._connection.is_in_doubt:
            # It does not count as answered, so the connection is closed.
            raise StoreUnavailable("The change is stored, but the synchronous standbys may not have it. Try again.")
        self._is_answered = True
        return answer


@contextmanager
def translate_errors() -> Generator[None]:
    """Translate every exception of the driver, except those that are bugs here."""
    try:
        yield
    except asyncpg.LockNotAvailableError as error:
        raise LockWaitTimeout("Another transaction has locked a row that this one needs.") from error
    except CONFLICTS as error:
        raise TransactionConflict(str(error)) from error
    except UNAVAILABLE_ERRORS as error:
        text = next(text for text, error_types in ERROR_MESSAGES.items() if isinstance(error, error_types))
        raise NOT_WRITABLE.get(text, StoreUnavailable)(text) from error
