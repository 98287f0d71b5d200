"""One connection to PostgreSQL: its settings, named statements, transactions, and the meaning of its errors."""

import asyncio
import socket
from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs] (it has none, so `DriverConnection` below declares them)

from app.domain.refusals import StoreUnavailable
from app.store.records.database import LockWaitTimeout
from app.store.records.rows import Row
from app.store.records.statements import Statement
from app.store.server.pool import TransactionConflict
from app.store.url import BadStoreUrl

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 20.0
"""A server that does not answer for this long counts as unavailable. No statement here takes a tenth of it."""

CLOSE_SECONDS = 2.0
MAX_PREPARED = 250
"""More than there are statements, so that a connection prepares each of them once."""

SETTINGS = {
    # No statement here joins two large tables, so a plan without an index is always a mistake. With the statistics
    # alone, which lag behind a queue that fills and empties, the planner makes that mistake.
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_material": "off",
    "enable_memoize": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "default_transaction_isolation": "read committed",
    # A transaction that holds a row for longer has been stopped in the middle.
    "lock_timeout": "3s",
    "statement_timeout": "15s",
    # A client that has vanished must not keep its rows. The server detects it within half a minute.
    "idle_in_transaction_session_timeout": "30s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
}
UNSAFE_SETTINGS: Mapping[str, str] = {
    "fsync": "PostgreSQL runs with fsync = off: a power cut can destroy the whole database.",
    "full_page_writes": "PostgreSQL runs with full_page_writes = off: a power cut can damage tables.",
    "synchronous_commit": "PostgreSQL acknowledges commits early (synchronous_commit): acknowledged changes can be lost.",
}
"""Warnings about settings that can lose a commit."""


KEEPALIVES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""The same keep-alive at this end, with the options that the operating system knows."""

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

UNAVAILABLE_ERRORS: tuple[type[BaseException], ...] = tuple(
    kind for error_types in ERROR_MESSAGES.values() for kind in error_types
)
CONFLICTS = (
    asyncpg.TransactionRollbackError,  # deadlock, serialization
    asyncpg.InvalidCachedStatementError,  # the tables have changed since the statement was prepared
    asyncpg.UniqueViolationError,  # another transaction has stored the same key since the statement began
)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Address:
    """The database's address, and whether each connection reaches one server session of its own.

    Behind a pooler such as PgBouncer it does not: prepared statements, settings and locks end with the transaction.
    `?statement_cache_size=0` in the URL declares a pooler.
    """

    url: str
    is_pooled: bool


def parse_address(url: str) -> Address:
    """Read `postgresql://user:password@host:port/database?options`. The driver knows the other options."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    cache_size = options.pop("statement_cache_size", None)
    if cache_size not in (None, "0"):
        raise BadStoreUrl("statement_cache_size in the database URL may only be 0, which declares a pooler.")
    return Address(parts._replace(query=urlencode(options)).geturl(), is_pooled=cache_size is not None)


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


REPLICATION_WAIT = "SyncRepWaitForLSN"
"""The function of PostgreSQL that waits for synchronous standbys. It warns if the wait was cancelled: the transaction is
committed here, and the standbys may not have it. Its name is the same in every language of the server."""


class KeepAliveConnection(asyncpg.Connection):
    """The driver's connection with TCP keep-alive, so that the system detects a vanished server.

    `is_in_doubt` is set if the server has cancelled a wait for its synchronous standbys.
    """

    _transport: asyncio.Transport
    is_in_doubt = False

    def note_warning(self, _connection: Any, message: Any) -> None:
        """Note a warning of the server. The driver reports it before it returns the answer that follows."""
        if message.server_source_function == REPLICATION_WAIT:
            self.is_in_doubt = True

    def keep_alive(self) -> None:
        sock: socket.socket = self._transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX:
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVES.items():
            if option := getattr(socket, name, None):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def connect(server_address: Address, answer_seconds: float | None = ANSWER_SECONDS) -> DriverConnection:
    """Open a connection to a server that takes writes. Without `answer_seconds` no statement has a limit here."""
    driver: Any = asyncpg
    settings = {"application_name": "peeklock"} | ({} if server_address.is_pooled else SETTINGS)
    try:
        with translate_errors():
            connection = await driver.connect(
                server_address.url,
                timeout=CONNECT_SECONDS,
                command_timeout=answer_seconds,
                statement_cache_size=0 if server_address.is_pooled else MAX_PREPARED,
                max_cached_statement_lifetime=0,
                server_settings=settings,
                target_session_attrs="read-write",
                connection_class=KeepAliveConnection,
            )
    except (asyncpg.ClientConfigurationError, asyncpg.UndefinedObjectError) as error:
        raise BadStoreUrl("The database URL has an unknown option, or an option has an invalid value.") from error
    connection.keep_alive()
    connection.add_log_listener(connection.note_warning)
    return connection


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
        """Commit the transaction, unless it has ended."""
        if self._connection.is_in_transaction():
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
            # Not answered: so the connection is closed.
            raise StoreUnavailable("The change is stored, but the synchronous standbys may not have it: ask again.")
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
        raise StoreUnavailable(
            next(text for text, error_types in ERROR_MESSAGES.items() if isinstance(error, error_types))
        ) from error
