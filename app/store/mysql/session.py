"""One connection to MariaDB or MySQL: several statements per round trip, transactions, the meaning of its errors."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from asyncmy import errors
from asyncmy.connection import Connection

from app.domain.refusals import StoreUnavailable
from app.store.mysql.templates import Template
from app.store.pooled.pool import TransactionConflict
from app.store.shared.database import DiskNotWritable, LockWaitTimeout, NotWritable
from app.store.shared.rows import Row

ANSWER_SECONDS = 15.0
"""A server that does not answer for this long counts as unavailable. No statement here takes a tenth of it."""

LOCK_WAIT_SECONDS = 3
"""How long a statement waits for a row that another transaction holds."""

CLOSE_SECONDS = 2.0

INITIAL_MAX_PACKET = 1024
"""Enough for the statements that configure a connection. No server accepts less."""

PACKET_MARGIN = 64 << 10
"""Bytes of a statement that drafts leave free, also because a message grows when its failures are recorded later."""

SETTINGS = (
    b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # A value that does not fit is refused, not truncated. A backslash escapes: the literals rely on that.
    b"SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    b"SET SESSION innodb_lock_wait_timeout = %d" % LOCK_WAIT_SECONDS,
    # Idle connections have no limit. A client that has vanished in a transaction must not keep its rows: MariaDB
    # detects it after half a minute, MySQL when TCP does.
    b"SET SESSION wait_timeout = 2147483 /*M!100300 , idle_transaction_timeout = 30 */",
    # MariaDB truncates JSON_ARRAYAGG there. The longest keys of the counts that one fold locks need a third of it.
    b"SET SESSION group_concat_max_len = 1048576",
    b"SET NAMES utf8mb4 COLLATE utf8mb4_bin",
)
BEGIN = b"START TRANSACTION"
COMMIT = b"COMMIT"
ROLLBACK = b"ROLLBACK"

# The numbers of errors, from the manuals of both servers.
CONFLICTS = frozenset({
    1213,  # deadlock; in a Galera cluster also at commit
    3101,  # undone by the other members of a replication group
    1020,  # changed since it was read, on a server with a stricter isolation than requested
    1062,  # a key that was free a moment ago
})  # fmt: skip
LOCK_WAIT_TIMEOUTS = frozenset({1205, 3572})  # 3572: MySQL, for a statement that does not wait at all
NULL_VIOLATION = 1048
CONNECTION_LOST = frozenset({
    0, 2003, 2006, 2013,  # not connected, cannot connect, gone before and during a statement
    1053, 1079, 1152, 1927, 1317,  # the server shuts down; this connection or statement was killed
})  # fmt: skip
ERROR_MESSAGES: Mapping[str, frozenset[int]] = {
    "The database cannot be reached.": CONNECTION_LOST,
    "The database refuses access.": frozenset({1044, 1045, 1049, 1129, 1130, 1698}),
    "The database accepts no more connections.": frozenset({1040, 1135, 1203, 1226}),
    "The database accepts no writes at present.": frozenset({1223, 1290, 1792, 1836, 3100}),
    "The disk of the database is full.": frozenset({3, 28, 1021, 1026, 1030, 1114, 1180}),
    "The database is out of memory.": frozenset({1037, 1038, 1041, 1206}),
    "The database cancelled a statement that took too long.": frozenset({1969, 3024}),
    "The database has no majority in its cluster.": frozenset({1047}),
}
"""Errors of the server's environment, with the text for clients. Any other error is a bug here."""


NOT_WRITABLE: Mapping[str, type[NotWritable]] = {
    "The database accepts no writes at present.": NotWritable,
    "The disk of the database is full.": DiskNotWritable,
}
"""The texts of errors that mean that no connection to this server can write."""


class StatementTooLarge(Exception):
    """The statements are larger than the server accepts (max_allowed_packet). They were not sent."""

    def __init__(self, size: int, max_packet: int) -> None:
        super().__init__(f"{size} bytes of SQL; the server accepts at most {max_packet}")
        self.largest = max_packet


class NullViolation(Exception):
    """A column that must not be null would be null, because the row that its value comes from does not exist."""


class StatementFailed(Exception):
    """The server refuses a statement: a bug here, or tables that are not current."""


@dataclass(frozen=True, slots=True)
class StatementResult:
    """The result of one statement: its rows, how many rows it matched, and the first number that it generated."""

    rows: Sequence[Row]
    changed: int
    first_number: int


Execute: TypeAlias = Callable[..., Awaitable[list[StatementResult]]]
"""Runs the last round trip of some work: `commit` commits in it, `execute` leaves the transaction open."""


class DriverConnection(Connection):
    """The driver's connection, with its private knowledge of a broken stream."""

    # The driver's own attribute, missing in its stubs.
    _stream_broken: bool

    @property
    def is_broken(self) -> bool:
        """Whether the connection can no longer be used."""
        return self._stream_broken


class MysqlSession:
    """A connection while a caller uses it, and the state of its protocol and transaction."""

    def __init__(self, connection: DriverConnection, statements: Mapping[str, Template]) -> None:
        self._connection = connection
        self._statements = statements
        self._max_packet = INITIAL_MAX_PACKET
        self._is_synchronized = True
        self._begin_pending = False
        self._in_transaction = False

    @property
    def is_usable(self) -> bool:
        """Return whether another caller may use it.

        After a cancellation or a lost reply the state is unknown, so the connection must be closed. The server then
        undoes what was not committed.
        """
        return self._is_synchronized and not self._in_transaction and not self._connection.is_broken

    def render(self, name: str, /, **values: Any) -> bytes:
        """Return a named statement with its values, to be sent together with others."""
        return self._statements[name].render(values)

    def render_inserts(self, name: str, values: Iterable[Mapping[str, Any]]) -> list[bytes]:
        """Return a named INSERT of all these rows, in as few statements as the server accepts."""
        return list(self._statements[name].render_inserts(values, self._max_packet - PACKET_MARGIN))

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """Return the rows of one named statement."""
        (result,) = await self.execute(self.render(name, **values))
        return result.rows

    async def change(self, name: str, /, **values: Any) -> int:
        """Run one named statement. Return how many rows it matched."""
        (result,) = await self.execute(self.render(name, **values))
        return result.changed

    async def execute(self, *texts: bytes) -> list[StatementResult]:
        """Run statements in one round trip, in order. The first that fails is the last.

        Raises `TransactionConflict`, `StatementTooLarge` or `StoreUnavailable`. `StatementFailed` is a bug.
        """
        if not self._begin_pending:
            return await self._exchange(texts)
        self._begin_pending = False
        return (await self._exchange((BEGIN, *texts)))[1:]

    async def begin(self) -> None:
        """Begin a transaction, in the round trip of its first statement."""
        self._in_transaction = self._begin_pending = True

    async def commit(self, *texts: bytes) -> list[StatementResult]:
        """Run the last statements of a transaction and commit it, in one round trip. Without statements, do nothing if
        the transaction has ended."""
        if not texts and not self._in_transaction:
            return []
        results = await self.execute(*texts, COMMIT)
        self._in_transaction = False
        return results[:-1]

    async def rollback(self) -> None:
        """Undo the transaction, unless it has ended or the server cannot be reached."""
        if self._in_transaction and self._is_synchronized and not self._connection.is_broken:
            await self.execute(ROLLBACK)
            self._in_transaction = False

    async def configure(self) -> None:
        """Apply to a new connection the settings that the statements here rely on."""
        *_, max_packet = await self.execute(*SETTINGS, b"SELECT @@max_allowed_packet")
        self._max_packet = max_packet.rows[0][0]

    def terminate(self) -> None:
        """Close the connection at once, even during a statement."""
        self._connection.close()

    async def close(self) -> None:
        """Close the connection with the protocol's goodbye."""
        with translate_errors():
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._connection.ensure_closed()

    async def _exchange(self, texts: Sequence[bytes]) -> list[StatementResult]:
        text = b";".join(texts)
        if len(text) >= self._max_packet:
            raise StatementTooLarge(len(text), self._max_packet)
        self._is_synchronized = False
        with translate_errors():
            async with asyncio.timeout(ANSWER_SECONDS):
                try:
                    results = await self._read_all(text)
                except errors.MySQLError as error:
                    self._is_synchronized = error_number(error) not in CONNECTION_LOST
                    raise
        self._is_synchronized = True
        return results

    async def _read_all(self, text: bytes) -> list[StatementResult]:
        # The driver's stubs leave most of its types unknown.
        cursor: Any = self._connection.cursor()
        await cursor.execute(text)
        results: list[StatementResult] = []
        more: bool | None = True
        while more:
            results.append(StatementResult(await cursor.fetchall(), cursor.rowcount, cursor.lastrowid))
            more = await cursor.nextset()
        return results


@contextmanager
def translate_errors() -> Generator[None]:
    """Translate every exception of the driver."""
    try:
        yield
    except errors.MySQLError as error:
        raise as_store_error(error) from error
    except (TimeoutError, OSError) as error:
        raise NotWritable("The database does not answer.") from error


def as_store_error(error: errors.MySQLError) -> Exception:
    """Translate an error of the driver into one of the store, with the store's text."""
    number = error_number(error)
    if number in CONFLICTS:
        return TransactionConflict(str(error))
    if number in LOCK_WAIT_TIMEOUTS:
        return LockWaitTimeout("Another transaction has locked a row that this one needs.")
    if number == NULL_VIOLATION:
        return NullViolation(str(error))
    for text, numbers in ERROR_MESSAGES.items():
        if number in numbers:
            return NOT_WRITABLE.get(text, StoreUnavailable)(text)
    return StatementFailed(str(error))


def error_number(error: errors.MySQLError) -> int:
    """Return the error's number. 0 is an error of the driver about a connection that it has lost."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0
