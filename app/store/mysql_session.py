"""One connection to MariaDB or MySQL: several statements to a round trip, transactions, and what its errors mean."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from asyncmy import errors
from asyncmy.connection import Connection

from app.domain.refusals import StoreUnavailable
from app.store.mysql_text import Template
from app.store.pool import Collision, LockWaitEnded
from app.store.rows import Row

Result = TypeVar("Result")

ANSWER_SECONDS = 15.0
"""After so long without an answer the server counts as gone; no statement here takes a tenth of it."""

LOCK_WAIT_SECONDS = 3
"""How long a statement waits for a row that another transaction holds."""

FAREWELL_SECONDS = 2.0

LARGEST_UNTIL_KNOWN = 1024
"""What the settings of a connection need; no server takes less at a time."""

ROOM_BESIDE = 64 << 10
"""Left free beside the drafts in a statement, also because a message grows by what it later says of its failures."""

SETTINGS = (
    b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # What does not fit is refused, not cut off; and a backslash escapes, on which the literals rely.
    b"SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    b"SET SESSION innodb_lock_wait_timeout = %d" % LOCK_WAIT_SECONDS,
    # Connections rest as long as they like. A client that has vanished in mid-transaction must not keep its rows:
    # MariaDB finds it out after half a minute, MySQL when TCP does.
    b"SET SESSION wait_timeout = 2147483 /*M!100300 , idle_transaction_timeout = 30 */",
    b"SET NAMES utf8mb4 COLLATE utf8mb4_bin",
)
BEGIN = b"START TRANSACTION"
COMMIT = b"COMMIT"
ROLLBACK = b"ROLLBACK"

# The numbers of errors, from the manuals of both servers.
COLLISIONS = frozenset({
    1213,  # deadlock; in a Galera cluster also at commit
    3101,  # undone by the other members of a replication group
    1020,  # changed since it was read, where a server isolates more strictly than it was asked to
    1062,  # a key that was free a moment ago
})  # fmt: skip
LOCK_WAITS_ENDED = frozenset({1205, 3572})  # 3572: MySQL, for a statement that does not wait at all
NULL_REFUSED = 1048
LOST = frozenset({
    0, 2003, 2006, 2013,  # not connected, cannot connect, gone before and during a statement
    1053, 1079, 1152, 1927, 1317,  # the server shuts down; this connection or statement was killed
})  # fmt: skip
SAYINGS: Mapping[str, frozenset[int]] = {
    "The database cannot be reached.": LOST,
    "The database does not let the store in.": frozenset({1044, 1045, 1049, 1129, 1130, 1698}),
    "The database takes no more connections.": frozenset({1040, 1135, 1203, 1226}),
    "The database cannot be written at present.": frozenset({1223, 1290, 1792, 1836, 3100}),
    "The disk of the database is full.": frozenset({3, 28, 1021, 1026, 1030, 1114, 1180}),
    "The database has no memory left.": frozenset({1037, 1038, 1041, 1206}),
    "The database gave up a statement that took too long.": frozenset({1969, 3024}),
    "The database has no majority in its cluster.": frozenset({1047}),
}
"""What the server cannot help, as the one who asked may hear it; any other error is a mistake here."""


class TextTooLarge(Exception):
    """The statements are larger than the server takes at a time (max_allowed_packet); they were not sent."""

    def __init__(self, size: int, largest: int) -> None:
        super().__init__(f"{size} bytes of SQL; the server takes at most {largest}")
        self.largest = largest


class NullRefused(Exception):
    """A column that must not be null would have been null, because the row its value comes from does not exist."""


class StatementFailed(Exception):
    """The server will not run a statement of ours: a mistake here or tables that are not today's."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one statement: its rows, how many rows it found to change, and the first number it gave out."""

    rows: Sequence[Row]
    changed: int
    first_number: int


Ask: TypeAlias = Callable[..., Awaitable[list[Answer]]]
"""How the last round trip of some work is made: `finish` commits in it, `ask` leaves the transaction open."""


class Wire(Connection):
    """The driver's connection, which keeps to itself whether the other end has gone."""

    # The driver's own property, which its stubs leave out.
    _stream_broken: bool

    @property
    def is_cut(self) -> bool:
        """Whether nothing can come over it any more."""
        return self._stream_broken


class Session:
    """A connection while it is lent to somebody, and what is under way on it."""

    def __init__(self, wire: Wire, statements: Mapping[str, Template]) -> None:
        self._wire = wire
        self._statements = statements
        self._largest = LARGEST_UNTIL_KNOWN
        self._in_step = True
        self._to_begin = False
        self._is_open = False

    @property
    def is_whole(self) -> bool:
        """Whether the next one may use it.

        After a cancellation or a lost reply nobody knows where it stands, so it must be closed; the server then
        undoes what was not committed.
        """
        return self._in_step and not self._is_open and not self._wire.is_cut

    def text(self, name: str, /, **values: Any) -> bytes:
        """A named statement with its values, to be asked together with others."""
        return self._statements[name].filled(values)

    def texts(self, name: str, values: Iterable[Mapping[str, Any]]) -> list[bytes]:
        """A named INSERT of all these rows, in as few statements as the server takes."""
        return list(self._statements[name].repeated(values, self._largest - ROOM_BESIDE))

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """The rows of one named statement."""
        (answer,) = await self.ask(self.text(name, **values))
        return answer.rows

    async def change(self, name: str, /, **values: Any) -> int:
        """Run one named statement; how many rows it found to change."""
        (answer,) = await self.ask(self.text(name, **values))
        return answer.changed

    async def ask(self, *texts: bytes) -> list[Answer]:
        """Run statements in one round trip, in order; the first that fails is the last.

        Raises `Collision`, `TextTooLarge` or `StoreUnavailable`; `StatementFailed` is a bug.
        """
        if not self._to_begin:
            return await self._exchange(texts)
        self._to_begin = False
        self._is_open = True
        return (await self._exchange((BEGIN, *texts)))[1:]

    async def finish(self, *texts: bytes) -> list[Answer]:
        """Run the last statements of a transaction and commit it, in one round trip."""
        answers = await self.ask(*texts, COMMIT)
        self._is_open = False
        return answers[:-1]

    async def transact(self, work: Callable[["Session"], Awaitable[Result]]) -> Result:
        """Run the work in one transaction, which begins with its first statement.

        It is committed when the work returns, unless the work has already called `finish`; it is undone when the
        work raises.
        """
        self._to_begin = True
        try:
            result = await work(self)
            if self._is_open:
                await self.finish()
            return result
        except Exception:
            await self.undo()
            raise
        finally:
            self._to_begin = False

    async def set_up(self) -> None:
        """Make a new connection mean what the statements here take for granted."""
        *_, largest = await self.ask(*SETTINGS, b"SELECT @@max_allowed_packet")
        self._largest = largest.rows[0][0]

    def cut(self) -> None:
        """Close the connection at once, whatever is under way."""
        self._wire.close()

    async def leave(self) -> None:
        """Say goodbye to the server."""
        with translated():
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._wire.ensure_closed()

    async def undo(self) -> None:
        """End a transaction as if it had never been, if one is under way and the server can still be told."""
        if self._is_open and self._in_step and not self._wire.is_cut:
            await self.ask(ROLLBACK)
            self._is_open = False

    async def _exchange(self, texts: Sequence[bytes]) -> list[Answer]:
        text = b";".join(texts)
        if len(text) >= self._largest:
            raise TextTooLarge(len(text), self._largest)
        self._in_step = False
        with translated():
            async with asyncio.timeout(ANSWER_SECONDS):
                try:
                    answers = await self._read_all(text)
                except errors.MySQLError as error:
                    self._in_step = number_of(error) not in LOST
                    raise
        self._in_step = True
        return answers

    async def _read_all(self, text: bytes) -> list[Answer]:
        # The driver's stubs leave most of its types unknown.
        cursor: Any = self._wire.cursor()
        await cursor.execute(text)
        answers: list[Answer] = []
        more: bool | None = True
        while more:
            answers.append(Answer(await cursor.fetchall(), cursor.rowcount, cursor.lastrowid))
            more = await cursor.nextset()
        return answers


@contextmanager
def translated() -> Generator[None]:
    """Let no exception of the driver through."""
    try:
        yield
    except errors.MySQLError as error:
        raise meaning(error) from error
    except (TimeoutError, OSError) as error:
        raise StoreUnavailable("The database does not answer.") from error


def meaning(error: errors.MySQLError) -> Exception:
    """What an error of the driver says, in words of our own."""
    number = number_of(error)
    if number in COLLISIONS:
        return Collision(str(error))
    if number in LOCK_WAITS_ENDED:
        return LockWaitEnded("Another transaction holds what this one needs.")
    if number == NULL_REFUSED:
        return NullRefused(str(error))
    for saying, numbers in SAYINGS.items():
        if number in numbers:
            return StoreUnavailable(saying)
    return StatementFailed(str(error))


def number_of(error: errors.MySQLError) -> int:
    """The error's number; 0 stands for one of the driver's own about a connection it has lost track of."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0
