"""A store under test: its queues, its clock, and SQL access to its tables from outside."""

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

import asyncpg
import pymysql
from msgspec.structs import replace
from sqlalchemy import BigInteger

from app.broker.ports.store import Store
from app.domain.delivery import Claim
from app.domain.instant import SECOND
from app.domain.message import BodyKind, Draft, Envelope, Message, MessageState
from app.domain.queue import FEATURE_LEVEL, Queue, QueueSettings
from app.domain.refusals import RequestInProgress, StoreUnavailable
from app.domain.settlement import LockToken, Move, Outcome, Removal
from app.runtime.clock import Clock
from app.store.open import open_store
from app.store.pooled.pool import InUse
from app.store.shared.database import BatchObserver
from app.store.sqlite.store import SqliteStore
from app.store.tables import SQLModel
from tests.bounds import bounded
from tests.virtual_clock import VirtualClock

TABLES = {table.name: table for table in SQLModel.metadata.sorted_tables if table.name not in ("broker", "group_lock")}
"""The tables that tests fill and empty. The others keep what a migration has put there."""
TIME_COLUMNS = {
    table.name: times
    for table in TABLES.values()
    if (times := [column.name for column in table.columns if column.name.endswith(("_at", "_until"))])
}
assert all(
    isinstance(TABLES[table].c[name].type, BigInteger) for table, names in TIME_COLUMNS.items() for name in names
)

LOCK_DURATION = 30 * SECOND

Answer = TypeVar("Answer")

StoreOpener: TypeAlias = Callable[[str, Clock, BatchObserver], Awaitable[Store]]
"""Opens the store at a URL, with the clock of its process. Reports each batch of callers."""


async def open_as_server(url: str, clock: Clock, observe: BatchObserver) -> Store:
    """Open the store as a server does."""
    return await open_store(url, clock, observe=observe)


class StoreFixture(ABC):
    """One empty store, opened for one test, and the clock of the process that uses it."""

    store: Store
    batch_sizes: list[int]
    """The number of callers of each run of each statement."""

    def record_batch(self, _statement: str, callers: int) -> None:
        """Record the callers of one statement."""
        self.batch_sizes.append(callers)

    def __init__(self, url: str, opener: StoreOpener = open_as_server) -> None:
        self.clock = VirtualClock()
        self._began_at = time.monotonic()
        self.batch_sizes = []
        self._url = url
        self._opener = opener

    async def open(self) -> None:
        """Open the store and delete the rows of earlier tests."""
        self.store = await self._opener(self._url, self.clock, self.record_batch)
        await self.delete_all_rows()

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()

    async def delete_all_rows(self) -> None:
        """Leave an empty store."""
        for table in TABLES:
            await self.execute(f"DELETE FROM {table}")

    @abstractmethod
    async def open_another(self) -> Store:
        """Open the same database again, as another process does. If only one process may have it, return the store."""

    @abstractmethod
    async def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Run SQL outside the store. Return its rows."""

    async def advance_time(self, seconds: float) -> None:
        """Make every stored row that much older, which for a store is the passing of time."""
        await self.clock.advance(seconds)
        for table, names in TIME_COLUMNS.items():
            shifts = ", ".join(f"{name} = {name} - {round(seconds * SECOND)}" for name in names)
            await self.execute(f"UPDATE {table} SET {shifts}")

    # ---- common steps ------------------------------------------------------------------------------------------------

    async def queue(self, settings: QueueSettings | None = None) -> Queue:
        """Create a queue."""
        queue, _ = await self.store.queues.create(f"queue-{secrets.token_hex(4)}", settings or QueueSettings())
        return queue

    async def need_newer_server(self, queue: Queue) -> None:
        """Give the queue a setting that only a newer version knows, as its server does."""
        await self.execute(f"UPDATE queue SET feature_level = {FEATURE_LEVEL + 1} WHERE id = {queue.id}")

    async def send(self, queue: Queue, *bodies: bytes, **fields: Any) -> list[int]:
        """Send messages that differ only in their bodies. Return their sequence numbers."""
        receipts = await self.store.send([draft(queue, body, **fields) for body in bodies])
        return [receipt.sequence_number for receipt in receipts]

    async def claim(self, queue: Queue, most: int = 100, **fields: Any) -> list[Message]:
        """Receive messages under lock."""
        return await self.store.claim(claim(queue, most, **fields))

    async def locked(self, queue: Queue, **fields: Any) -> Message:
        """Send one message and receive it."""
        (number,) = await self.send(queue, b"body")
        (message,) = await self.claim(queue, 1, **fields)
        assert message.sequence_number == number
        return message

    async def state(self, message: Message) -> MessageState | None:
        """Return the current state of the message, or None if it is in no queue."""
        found = await self.store.read(message.queue_id, message.sequence_number)
        return found and found.state

    def is_close(self, one: int | None, other: int | None) -> bool:
        """Return whether two instants differ only by the time that this test has taken, however slow the machine."""
        tolerance = round((time.monotonic() - self._began_at) * SECOND) + SECOND
        return one is not None and other is not None and abs(one - other) < tolerance

    async def archived(self, number: int, *columns: str) -> list[tuple[Any, ...]]:
        """Return these columns of the message's row in the archive."""
        return await self.execute(f"SELECT {', '.join(columns)} FROM archive WHERE sequence_number = {number}")


class SqliteFixture(StoreFixture):
    """SQLite uses the clock of its one process, which is virtual here."""

    async def open_another(self) -> Store:
        return self.store

    async def execute(self, sql: str) -> list[tuple[Any, ...]]:
        assert isinstance(self.store, SqliteStore)
        return await self.store.database.call_on_writer(lambda connection: connection.execute(sql).fetchall())

    async def advance_time(self, seconds: float) -> None:
        await self.clock.advance(seconds)


class ServerFixture(StoreFixture):
    """A store on a database server, where other transactions may lock rows."""

    async def open_another(self) -> Store:
        return await self._opener(self._url, self.clock, self.record_batch)

    @abstractmethod
    def open_transaction(self, *statements: str, commits: bool = False) -> AbstractAsyncContextManager[None]:
        """Run these statements in another transaction, which stays open until the block ends. Then undo or commit it."""

    async def wait_until_blocked(self) -> None:
        """Return when a statement waits for a lock of another transaction."""
        for _ in bounded("a statement waits"):
            if await self.execute(self.blocked_query):
                return
            await asyncio.sleep(0.01)

    blocked_query: ClassVar[str]
    """A query with a row for each waiting statement in this database."""

    def attempt_statements(self, key: bytes) -> Sequence[str]:
        """Statements of a transaction that has begun this attempt and has not ended."""
        name = self.literal(key)
        return [f"INSERT INTO attempt (attempt_key, fingerprint, remove_at) VALUES ({name}, {name}, 0)"]

    def repeat_statement(self, key: bytes) -> str:
        """The first statement of a transaction that repeats this attempt."""
        return f"SELECT 1 FROM attempt WHERE attempt_key = {self.literal(key)} FOR UPDATE"

    @abstractmethod
    def literal(self, value: bytes) -> str:
        """Return these bytes as an SQL literal."""


class PostgresqlFixture(ServerFixture):
    """PostgreSQL has its own clock."""

    blocked_query = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"

    async def open(self) -> None:
        self._connection = await asyncpg.connect(self._url)
        await super().open()

    async def close(self) -> None:
        """Close the store. After every test, the depths that it keeps must be exact."""
        await super().close()
        wrong = await self.execute(WRONG_DEPTHS)
        await self._connection.close()
        assert wrong == []

    async def execute(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._connection.fetch(sql)]

    @asynccontextmanager
    async def open_transaction(self, *statements: str, commits: bool = False) -> AsyncIterator[None]:
        connection = await asyncpg.connect(self._url)
        transaction = connection.transaction()
        await transaction.start()
        for statement in statements:
            await connection.execute(statement)
        try:
            yield
        finally:
            await (transaction.commit() if commits else transaction.rollback())
            await connection.close()

    def attempt_statements(self, key: bytes) -> Sequence[str]:
        return [self.repeat_statement(key), *super().attempt_statements(key)]

    def repeat_statement(self, key: bytes) -> str:
        return f"SELECT pg_advisory_xact_lock(hashtextextended('{key.hex()}', 0))"

    def literal(self, value: bytes) -> str:
        return f"'\\x{value.hex()}'"


WRONG_DEPTHS = """
SELECT queue_id, kept.total, kept.scheduled, kept.deferred, kept.dead_lettered, kept.blocked,
    counted.total, counted.scheduled, counted.deferred, counted.dead_lettered, counted.blocked
FROM (
    SELECT queue_id, sum(total) AS total, sum(scheduled) AS scheduled, sum(deferred) AS deferred,
        sum(dead_lettered) AS dead_lettered, sum(blocked) AS blocked
    FROM depth JOIN queue ON queue.id = queue_id GROUP BY queue_id
) AS kept
FULL JOIN (
    SELECT queue_id, count(*) AS total, count(*) FILTER (WHERE state = 3) AS scheduled,
        count(*) FILTER (WHERE state = 4) AS deferred, count(*) FILTER (WHERE state = 5) AS dead_lettered,
        count(*) FILTER (WHERE state = 7) AS blocked
    FROM message JOIN queue ON queue.id = queue_id GROUP BY queue_id
) AS counted USING (queue_id)
WHERE (coalesce(kept.total, 0), coalesce(kept.scheduled, 0), coalesce(kept.deferred, 0),
        coalesce(kept.dead_lettered, 0), coalesce(kept.blocked, 0))
    <> (coalesce(counted.total, 0), coalesce(counted.scheduled, 0), coalesce(counted.deferred, 0),
        coalesce(counted.dead_lettered, 0), coalesce(counted.blocked, 0))
"""


class MariadbFixture(ServerFixture):
    """MariaDB and MySQL have their own clock."""

    blocked_query = (
        "SELECT 1 FROM information_schema.processlist "
        "WHERE (state LIKE 'Waiting for table%' OR state = 'Updating' OR (state = 'Statistics' AND info LIKE '%FOR UPDATE'))"
        " AND db = DATABASE()"
    )

    def __init__(self, url: str, opener: StoreOpener = open_as_server) -> None:
        super().__init__(url, opener)
        self._connection = self._connect(autocommit=True)

    async def close(self) -> None:
        await super().close()
        self._connection.close()

    def _connect(self, *, autocommit: bool) -> pymysql.Connection:
        parts = urlsplit(self._url)
        return pymysql.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            database=parts.path.strip("/"),
            autocommit=autocommit,
        )

    async def execute(self, sql: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    @asynccontextmanager
    async def open_transaction(self, *statements: str, commits: bool = False) -> AsyncIterator[None]:
        with closing(self._connect(autocommit=False)) as connection, connection.cursor() as cursor:
            for statement in ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", *statements):
                cursor.execute(statement)
            try:
                yield
            finally:
                # After a mere close, the server keeps the connection's row locks until it notices.
                connection.commit() if commits else connection.rollback()

    def literal(self, value: bytes) -> str:
        return f"X'{value.hex()}'"


# ---- requests to a store ---------------------------------------------------------------------------------------------


def draft(queue: Queue, body: bytes = b"body", message_id: str | None = None, **fields: Any) -> Draft:
    """A draft for the queue, with an id of its own unless one is given."""
    fields.setdefault("envelope", Envelope(message_id or secrets.token_hex(8)))
    return Draft(queue.id, body=body, body_kind=BodyKind.BYTES, **fields)


def claim(queue: Queue, most: int = 100, **fields: Any) -> Claim:
    """A claim of messages of the queue."""
    return Claim(queue.id, most, **{"lock_duration": LOCK_DURATION} | fields)


def token(message: Message) -> LockToken:
    """The token of a received message."""
    assert message.lock_token is not None
    return LockToken(message.sequence_number, message.lock_token)


def completion(queue: Queue, message: Message, **fields: Any) -> Removal:
    """A removal: the receiver completes the message."""
    retention = queue.settings.archive_retention
    values = {"outcome": Outcome.COMPLETED, "retention": retention} | fields
    return Removal(token(message), queue.id, queue.name, **values)


def abandonment(message: Message, **fields: Any) -> Move:
    """A move: the receiver abandons the message to its home state, and the delivery counts."""
    values = {"outcome": Outcome.ABANDONED, "state": MessageState.AVAILABLE, "failures": 1} | fields
    return Move(token(message), message.queue_id, **values)


def expiry(message: Message, **fields: Any) -> Move:
    """A move: the sweep releases the message because its lock has ended."""
    return abandonment(message, outcome=Outcome.LOCK_EXPIRED, **fields)


def with_wrong_token(message: Message) -> Message:
    """The message with a guessed token."""
    return replace(message, lock_token=secrets.token_bytes(16))


def numbers(messages: Sequence[Message]) -> list[int]:
    """Return their sequence numbers, in order."""
    return [message.sequence_number for message in messages]


def bodies(messages: Sequence[Message]) -> list[bytes]:
    """Return their bodies, in order."""
    return [message.body for message in messages]


async def retry_until_answered(action: Callable[[], Awaitable[Answer]]) -> Answer:
    """Retry, as a client does, while another request uses the same id or key. Every other refusal is raised."""
    for _ in bounded("the action is answered"):
        try:
            return await action()
        except RequestInProgress:
            pass
        except StoreUnavailable as refusal:
            if not isinstance(refusal.__cause__, InUse):
                raise
    raise AssertionError


def sqlite_in_memory() -> SqliteFixture:
    """A store that ends with its test."""
    return SqliteFixture("sqlite://")


def sqlite_file(path: Path) -> SqliteFixture:
    """A store in a file that has its tables."""
    return SqliteFixture(f"sqlite:///{path}")
