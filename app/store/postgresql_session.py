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
from app.store.pool import Collision, LockWaitEnded
from app.store.rows import Row
from app.store.statements import Statement
from app.store.url import BadStoreUrl

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 20.0
"""After so long without an answer the server counts as gone; no statement here takes a tenth of it."""

FAREWELL_SECONDS = 2.0

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
WEAKNESSES: Mapping[str, str] = {
    "fsync": "PostgreSQL runs with fsync = off: a power cut can destroy the whole database.",
    "full_page_writes": "PostgreSQL runs with full_page_writes = off: a power cut can damage tables.",
    "synchronous_commit": "PostgreSQL acknowledges commits early (synchronous_commit): what was answered can be lost.",
}
"""What is said of settings by which a commit can be lost."""


KEEPALIVES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""The same for this end, as far as the system knows these options."""

SAYINGS: Mapping[str, tuple[type[BaseException], ...]] = {
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

CANNOT_ANSWER: tuple[type[BaseException], ...] = tuple(kind for kinds in SAYINGS.values() for kind in kinds)
COLLISIONS = (
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


def address(url: str) -> Address:
    """Read `postgresql://user:password@host:port/database?options`; the driver knows the other options."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    cache = options.pop("statement_cache_size", None)
    if cache not in (None, "0"):
        raise BadStoreUrl(
            "statement_cache_size in the database URL may only be 0, which says that a pooler is between."
        )
    return Address(parts._replace(query=urlencode(options)).geturl(), is_pooled=cache is not None)


class Wire(Protocol):
    """What is needed of the driver's connection, whose own types say too little."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Row]: ...
    async def execute(self, query: str, *args: Any) -> str: ...
    async def close(self) -> None: ...
    def terminate(self) -> None: ...
    def is_closed(self) -> bool: ...
    def is_in_transaction(self) -> bool: ...


class KeptAlive(asyncpg.Connection):
    """The driver's connection, which has the system notice when the other end has vanished without a word."""

    _transport: asyncio.Transport

    def keep_alive(self) -> None:
        plug: socket.socket = self._transport.get_extra_info("socket")
        if plug.family == socket.AF_UNIX:
            return
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVES.items():
            if option := getattr(socket, name, None):
                plug.setsockopt(socket.IPPROTO_TCP, option, value)


async def connect(where: Address) -> Wire:
    """A new connection to a server that takes writes."""
    driver: Any = asyncpg
    settings = {"application_name": "peeklock"} | ({} if where.is_pooled else SETTINGS)
    try:
        with translated():
            wire = await driver.connect(
                where.url,
                timeout=CONNECT_SECONDS,
                command_timeout=ANSWER_SECONDS,
                statement_cache_size=0 if where.is_pooled else 100,
                max_cached_statement_lifetime=0,
                server_settings=settings,
                target_session_attrs="read-write",
                connection_class=KeptAlive,
            )
    except (asyncpg.ClientConfigurationError, asyncpg.UndefinedObjectError) as error:
        raise BadStoreUrl(
            "The database URL has an option that is not known here, or a value that it cannot have."
        ) from error
    wire.keep_alive()
    return wire


COLUMN_TYPES = (list, tuple)


class PreparedStatement:
    """A named statement in the form of the driver."""

    __slots__ = ("names", "text")

    def __init__(self, statement: Statement) -> None:
        self.text, self.names = statement.numbered()

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The values in the order in which the text numbers them."""
        return [_spared(values[name]) for name in self.names]


def _spared(value: Any) -> Any:
    """The value; or an empty array for a column of nulls, which `unnest` fills up again and which costs nothing."""
    if type(value) in COLUMN_TYPES and value and value[0] is None and value.count(None) == len(value):
        return ()
    return value


class Session:
    """A connection while it is lent to somebody."""

    def __init__(self, wire: Wire, statements: Mapping[str, PreparedStatement]) -> None:
        self._wire = wire
        self._statements = statements
        self._answered = True

    @property
    def is_whole(self) -> bool:
        """Whether the next one may use it."""
        return self._is_in_step and not self._wire.is_in_transaction()

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """The rows of one named statement."""
        statement = self._statements[name]
        return await self._ask(self._wire.fetch(statement.text, *statement.arguments(values)))

    async def change(self, name: str, /, **values: Any) -> int:
        """Run one named statement; how many rows it found to change."""
        statement = self._statements[name]
        done = await self._ask(self._wire.execute(statement.text, *statement.arguments(values)))
        return int(done.rpartition(" ")[2])

    async def transact(self, work: Callable[["Session"], Awaitable[Result]]) -> Result:
        """Run the work in one transaction, committed when it returns, unless it has called `undo`; undone when it raises."""
        await self._ask(self._wire.execute("BEGIN"))
        try:
            result = await work(self)
        except Exception:
            if self._is_in_step:
                await self.undo()
            raise
        if self._wire.is_in_transaction():
            await self._ask(self._wire.execute("COMMIT"))
        return result

    async def undo(self) -> None:
        """Roll the transaction back."""
        await self._ask(self._wire.execute("ROLLBACK"))

    @property
    def _is_in_step(self) -> bool:
        """Whether it is known where the connection stands; not after a cancellation."""
        return self._answered and not self._wire.is_closed()

    async def leave(self) -> None:
        """Say goodbye to the server."""
        with translated():
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._wire.close()

    def cut(self) -> None:
        """Close the connection at once, whatever is under way."""
        self._wire.terminate()

    async def _ask(self, asked: Awaitable[Result]) -> Result:
        self._answered = False
        try:
            answer = await asked
        except Exception as error:
            self._answered = isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError)
            with translated():
                if isinstance(error, asyncpg.InterfaceError) and self._wire.is_closed():
                    # The driver says the same of a lost connection as of a value it will not take.
                    raise ConnectionResetError("the connection is closed") from error
                raise
        self._answered = True
        return answer


@contextmanager
def translated() -> Generator[None]:
    """Let no exception of the driver through that is not a mistake of ours."""
    try:
        yield
    except asyncpg.LockNotAvailableError as error:
        raise LockWaitEnded("Another transaction holds what this one needs.") from error
    except COLLISIONS as error:
        raise Collision(str(error)) from error
    except CANNOT_ANSWER as error:
        raise StoreUnavailable(next(said for said, kinds in SAYINGS.items() if isinstance(error, kinds))) from error
