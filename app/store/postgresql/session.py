"""One connection to PostgreSQL: what is settled when it opens, named statements, transactions, what its errors mean."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs] (there are none, hence `Wire` below)

from app.domain.refusals import StoreUnavailable
from app.store.records.rows import Row
from app.store.records.statements import Statement
from app.store.server.pool import LockWaitTimeout, TransactionConflict
from app.store.url import BadStoreUrl

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 20.0
"""After so long without an answer the server counts as gone; no statement here takes a tenth of it."""

CLOSE_SECONDS = 2.0

SETTINGS = {
    # No statement here joins two large tables, so a plan that does not walk an index is always a mistake. Left to the
    # statistics, which lag behind a queue that fills and empties, the planner makes it.
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
    # Whoever holds a row for longer has been stopped in the middle of a transaction.
    "lock_timeout": "3s",
    "statement_timeout": "15s",
    # A client that has vanished must not keep its rows: found out within half a minute.
    "idle_in_transaction_session_timeout": "30s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
}
UNSAFE_SETTINGS: Mapping[str, str] = {
    "fsync": "PostgreSQL runs with fsync = off: a power cut can destroy the whole database.",
    "full_page_writes": "PostgreSQL runs with full_page_writes = off: a power cut can damage tables.",
    "synchronous_commit": "PostgreSQL acknowledges commits early (synchronous_commit): what was answered can be lost.",
}
"""What is said of settings by which a commit can be lost."""


KEEPALIVES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""The same for this end, as far as the system knows these options."""

ERROR_MESSAGES: Mapping[str, tuple[type[BaseException], ...]] = {
    "The database does not answer.": (TimeoutError,),
    "The database does not let the store in.": (
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
    ),
    "The database takes no more connections.": (asyncpg.TooManyConnectionsError,),
    "The database cannot be written at present.": (
        asyncpg.ReadOnlySQLTransactionError,  # a standby, or what has become one
        asyncpg.TargetServerAttributeNotMatched,  # a standby at the start
    ),
    "The disk of the database is full.": (asyncpg.DiskFullError,),
    "The disk of the database cannot be read or written.": (asyncpg.PostgresSystemError,),
    "The database has no memory left.": (asyncpg.InsufficientResourcesError,),
    "The database gave up a statement that took too long.": (asyncpg.QueryCanceledError,),
    "The database cannot be reached.": (
        OSError,
        asyncpg.PostgresConnectionError,
        asyncpg.OperatorInterventionError,  # shutting down, crashed or starting
        asyncpg.InternalClientError,  # a connection that ended while nobody looked
        asyncpg.IdleInTransactionSessionTimeoutError,
    ),
}
"""What the server cannot help, as the one who asked may hear it, special before general; any other error is a mistake
here. The driver's own words name hosts, roles and rows, which are nobody else's business."""

UNAVAILABLE_ERRORS: tuple[type[BaseException], ...] = tuple(
    kind for error_types in ERROR_MESSAGES.values() for kind in error_types
)
CONFLICTS = (
    asyncpg.TransactionRollbackError,  # deadlock, serialization
    asyncpg.InvalidCachedStatementError,  # the tables have changed since the statement was prepared
)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the database is, and whether connections to it are ours alone.

    Behind a pooler such as PgBouncer they are not: neither prepared statements nor settings nor locks outlast a
    transaction there. `?statement_cache_size=0` in the URL says so.
    """

    url: str
    is_pooled: bool


def parse_address(url: str) -> Address:
    """Read `postgresql://user:password@host:port/database?options`; the driver knows the other options."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    cache_size = options.pop("statement_cache_size", None)
    if cache_size not in (None, "0"):
        raise BadStoreUrl(
            "statement_cache_size in the database URL may only be 0, which says that a pooler is between."
        )
    return Address(parts._replace(query=urlencode(options)).geturl(), is_pooled=cache_size is not None)


class DriverConnection(Protocol):
    """What is needed of the driver's connection, whose own types say too little."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Row]: ...
    async def execute(self, query: str, *args: Any) -> str: ...
    async def close(self) -> None: ...
    def terminate(self) -> None: ...
    def is_closed(self) -> bool: ...
    def is_in_transaction(self) -> bool: ...


class KeepAliveConnection(asyncpg.Connection):
    """The driver's connection, which has the system notice when the other end has vanished without a word."""

    _transport: asyncio.Transport

    def keep_alive(self) -> None:
        sock: socket.socket = self._transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX:
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVES.items():
            if option := getattr(socket, name, None):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def connect(server_address: Address) -> DriverConnection:
    """A new connection to a server that takes writes."""
    driver: Any = asyncpg
    settings = {"application_name": "peeklock"} | ({} if server_address.is_pooled else SETTINGS)
    try:
        with translate_errors():
            connection = await driver.connect(
                server_address.url,
                timeout=CONNECT_SECONDS,
                command_timeout=ANSWER_SECONDS,
                statement_cache_size=0 if server_address.is_pooled else 100,
                max_cached_statement_lifetime=0,
                server_settings=settings,
                target_session_attrs="read-write",
                connection_class=KeepAliveConnection,
            )
    except (asyncpg.ClientConfigurationError, asyncpg.UndefinedObjectError) as error:
        raise BadStoreUrl(
            "The database URL has an option that is not known here, or a value that it cannot have."
        ) from error
    connection.keep_alive()
    return connection


ARRAY_TYPES = (list, tuple)


class PreparedStatement:
    """A named statement in the form of the driver."""

    __slots__ = ("names", "text")

    def __init__(self, statement: Statement) -> None:
        self.text, self.names = statement.with_numbered_params()

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The values in the order in which the text numbers them."""
        return [_without_nulls(values[name]) for name in self.names]


def _without_nulls(value: Any) -> Any:
    """The value; or an empty array for a column of nulls, which `unnest` fills up again and which costs nothing."""
    if type(value) in ARRAY_TYPES and value and value[0] is None and value.count(None) == len(value):
        return ()
    return value


class PostgresqlSession:
    """A connection while it is lent to somebody."""

    def __init__(self, connection: DriverConnection, statements: Mapping[str, PreparedStatement]) -> None:
        self._connection = connection
        self._statements = statements
        self._is_answered = True

    @property
    def is_usable(self) -> bool:
        """Whether the next one may use it."""
        return self._is_synchronized and not self._connection.is_in_transaction()

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """The rows of one named statement."""
        statement = self._statements[name]
        return await self._await_answer(self._connection.fetch(statement.text, *statement.arguments(values)))

    async def change(self, name: str, /, **values: Any) -> int:
        """Run one named statement; how many rows it found to change."""
        statement = self._statements[name]
        done = await self._await_answer(self._connection.execute(statement.text, *statement.arguments(values)))
        return int(done.rpartition(" ")[2])

    async def transact(self, work: Callable[["PostgresqlSession"], Awaitable[Result]]) -> Result:
        """Run the work in one transaction, committed when it returns, unless it has called `undo`; undone when it raises."""
        await self._await_answer(self._connection.execute("BEGIN"))
        try:
            result = await work(self)
        except Exception:
            if self._is_synchronized:
                await self.rollback()
            raise
        if self._connection.is_in_transaction():
            await self._await_answer(self._connection.execute("COMMIT"))
        return result

    async def rollback(self) -> None:
        """Roll the transaction back."""
        await self._await_answer(self._connection.execute("ROLLBACK"))

    @property
    def _is_synchronized(self) -> bool:
        """Whether it is known where the connection stands; not after a cancellation."""
        return self._is_answered and not self._connection.is_closed()

    async def close(self) -> None:
        """Say goodbye to the server."""
        with translate_errors():
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._connection.close()

    def terminate(self) -> None:
        """Close the connection at once, whatever is under way."""
        self._connection.terminate()

    async def _await_answer(self, pending: Awaitable[Result]) -> Result:
        self._is_answered = False
        try:
            answer = await pending
        except Exception as error:
            self._is_answered = isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError)
            with translate_errors():
                if isinstance(error, asyncpg.InterfaceError) and self._connection.is_closed():
                    # The driver says the same of a lost connection as of a value it will not take.
                    raise ConnectionResetError("the connection is closed") from error
                raise
        self._is_answered = True
        return answer


@contextmanager
def translate_errors() -> Generator[None]:
    """Let no exception of the driver through that is not a mistake of ours."""
    try:
        yield
    except asyncpg.LockNotAvailableError as error:
        raise LockWaitTimeout("Another transaction holds what this one needs.") from error
    except CONFLICTS as error:
        raise TransactionConflict(str(error)) from error
    except UNAVAILABLE_ERRORS as error:
        raise StoreUnavailable(
            next(text for text, error_types in ERROR_MESSAGES.items() if isinstance(error, error_types))
        ) from error
