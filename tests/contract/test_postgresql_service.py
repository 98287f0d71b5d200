"""Particular to PostgreSQL as a service: the lock on a database, poolers, lost connections."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import asyncpg
import pytest

from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import LockToken
from app.runtime.clock import SystemClock
from app.store.in_use import DatabaseInUse
from app.store.migrate import migrate
from app.store.open import open_store
from app.store.pooled.batching import POOLER_WARNING
from app.store.pooled.pool import Pool, TransactionConflict
from app.store.postgresql.connect import connect, parse_address
from app.store.postgresql.session import (
    UNSAFE_SETTINGS,
    PostgresqlSession,
    PreparedStatement,
    translate_errors,
)
from app.store.postgresql.store import PostgresqlStore
from app.store.shared.database import DiskNotWritable, LockWaitTimeout
from app.store.shared.statements import Statement
from tests.bounds import bounded
from tests.contract.store_fixture import PostgresqlFixture, bodies, claim, completion, draft
from tests.servers import PostgresServer, ServerProcess

Result = TypeVar("Result")

BACKEND = Statement("backend", "the process that serves this connection", "SELECT pg_backend_pid()")


@pytest.fixture
async def store_fixture(postgres_url: str) -> AsyncIterator[PostgresqlFixture]:
    """An empty PostgreSQL store."""
    store_fixture = PostgresqlFixture(postgres_url)
    await store_fixture.open()
    yield store_fixture
    await store_fixture.close()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresqlStore]:
    """Open the database once more, as another process does."""
    store = await open_store(url, SystemClock())
    assert isinstance(store, PostgresqlStore)
    try:
        yield store
    finally:
        await store.close()


async def ask(store: PostgresqlStore, sql: str) -> Sequence[Any]:
    """Return the rows of a query over one of the store's own connections."""
    return await store._pool.run(lambda session: session._connection.fetch(sql))


# ---- lock on the database --------------------------------------------------------------------------------------------


async def test_one_process_without_redis_locks_the_database_exclusively(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as other:
        assert await one.acquire_exclusive() == []
        with pytest.raises(DatabaseInUse, match="Redis"):
            await other.acquire_exclusive()
        with pytest.raises(DatabaseInUse, match="Redis"):
            await other.acquire_shared()


async def test_processes_with_redis_share_the_database_but_not_with_one_without(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as other, opened(postgres_url) as third:
        await one.acquire_shared()
        await other.acquire_shared()
        with pytest.raises(DatabaseInUse):
            await third.acquire_exclusive()


async def test_a_closed_store_releases_the_database(postgres_url: str) -> None:
    async with opened(postgres_url) as one:
        await one.acquire_exclusive()
    async with opened(postgres_url) as other:
        await other.acquire_exclusive()


async def test_a_lost_lock_on_the_database_is_taken_again(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as other:
        await one.acquire_exclusive()
        await end_connections(postgres_url)
        await eventually(partial(check_lock_held, one, postgres_url))
        with pytest.raises(DatabaseInUse):
            await eventually(other.acquire_exclusive)


ADVISORY_LOCKS = (
    "SELECT pid FROM pg_locks JOIN pg_database ON pg_database.oid = database "
    "WHERE locktype = 'advisory' AND datname = current_database()"
)
"""Those of this database. The view shows all databases of the server, which other tests use at the same time."""


async def check_lock_held(store: PostgresqlStore, url: str) -> None:
    """Let the store check its advisory lock. Until it holds it again, the store counts as unavailable."""
    await store.now()
    connection = await asyncpg.connect(url)
    held = await connection.fetch(ADVISORY_LOCKS)
    await connection.close()
    if not held:
        raise StoreUnavailable


async def test_a_process_that_registers_again_alone_invalidates_lock_records(
    store_fixture: PostgresqlFixture, queue: Queue
) -> None:
    """The database may have been replaced by a backup while the process was paused."""
    async with opened(store_fixture._url) as store:
        await store.acquire_shared()
        before = await store.queues.by_name(queue.name)
        await end_connections(store_fixture._url)
        await eventually(partial(check_lock_held, store, store_fixture._url))
        after = await store.queues.by_name(queue.name)
    assert before is not None
    assert after is not None
    assert after.lock_version != before.lock_version


async def test_a_store_is_unavailable_while_another_process_has_taken_its_lock(postgres_url: str) -> None:
    async with opened(postgres_url) as one:
        await one.acquire_exclusive()
        async with opened(postgres_url) as other:
            await end_connections(postgres_url)
            await eventually(other.acquire_exclusive)
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await one.now()
        await eventually(one.now)


async def test_open_connections_serve_nothing_once_another_process_has_taken_the_lock(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as other:
        await one.acquire_exclusive()
        await one.locked_messages([])
        await ask(other, f"SELECT pg_terminate_backend(pid) FROM ({ADVISORY_LOCKS}) AS holder")
        await eventually(other.acquire_exclusive)
        for _ in bounded("the store notices"):  # its end of the connection closes a little later than the lock
            try:
                await one.now()
            except StoreUnavailable:
                break
        with pytest.raises(StoreUnavailable, match="Another process serves this database"):
            await one.locked_messages([LockToken(7, bytes(16))])
        with pytest.raises(StoreUnavailable, match="Another process serves this database"):
            await one.queues.by_name("jobs")


@pytest.mark.parametrize("setting", ["synchronous_commit"])
async def test_unsafe_server_settings_are_reported(postgres_url: str, setting: str) -> None:
    async with opened(f"{postgres_url}?{setting}=off") as store:
        assert await store.acquire_exclusive() == await store.durability_risks() == [UNSAFE_SETTINGS[setting]]


async def test_behind_a_pooler_nothing_outlasts_a_transaction(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    url = f"{store_fixture._url}?statement_cache_size=0"
    async with opened(url) as store, opened(url) as other:
        assert await store.acquire_exclusive() == [POOLER_WARNING]
        assert await store.durability_risks() == []
        assert await other.acquire_exclusive() == [POOLER_WARNING]
        await store.send([draft(queue)])
        (message,) = await other.claim(claim(queue))
        assert await store.remove([completion(queue, message)]) == [True]
        assert await ask(store, "SELECT name FROM pg_prepared_statements") == []
        assert await ask(store, ADVISORY_LOCKS) == []


def test_the_statement_cache_can_only_be_switched_off() -> None:
    with pytest.raises(ValueError, match="statement_cache_size"):
        parse_address("postgresql://localhost/peeklock?statement_cache_size=50")
    server_address = parse_address("postgresql://localhost/peeklock?statement_cache_size=0&sslmode=require")
    assert (server_address.hosts["localhost"], server_address.is_pooled) == (
        "postgresql://localhost/peeklock?sslmode=require",
        True,
    )


# ---- outages ---------------------------------------------------------------------------------------------------------


async def test_a_silent_server_is_unavailable(postgres_url: str) -> None:
    async def new_session() -> PostgresqlSession:
        connection = await connect(parse_address(postgres_url), answer_seconds=3.0)
        return PostgresqlSession(connection, {"backend": PreparedStatement(BACKEND)})

    pool = Pool(new_session, 1)
    ((backend,),) = await pool.fetch("backend")
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await pool.fetch("backend")
    finally:
        os.kill(backend, signal.SIGCONT)
    assert await pool.fetch("backend") != [(backend,)]
    await pool.close()


async def end_connections(url: str) -> None:
    """End every connection of the service to this database. Return when they have ended."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'peeklock'"
    )
    await connection.close()


async def eventually(act: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of the action once the store is available again. A minute is too long."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await act()
            except StoreUnavailable:
                await asyncio.sleep(0.02)


async def test_after_lost_connections_the_store_continues_without_a_restart(
    store_fixture: PostgresqlFixture, queue: Queue
) -> None:
    await store_fixture.send(queue, b"before")
    await end_connections(store_fixture._url)
    await eventually(lambda: store_fixture.store.send([draft(queue, b"after")]))
    messages = await eventually(lambda: store_fixture.store.claim(claim(queue)))
    assert bodies(messages)[:2] == [b"before", b"after"]


async def test_a_connection_lost_in_the_middle_fails_every_caller_of_its_batch(
    store_fixture: PostgresqlFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    # The table is locked, because a settlement skips a locked row.
    async with store_fixture.open_transaction("LOCK TABLE message"):
        settled = [asyncio.create_task(store_fixture.store.remove([completion(queue, message)])) for _ in range(3)]
        await store_fixture.wait_until_blocked()
        await end_connections(store_fixture._url)
        outcomes = await asyncio.gather(*settled, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    assert await eventually(lambda: store_fixture.store.remove([completion(queue, message)])) == [True]


async def test_a_server_that_stops_and_starts_again(private_server: Callable[..., ServerProcess]) -> None:
    server = private_server(PostgresServer)
    await asyncio.to_thread(migrate, server.url)
    async with opened(server.url) as store:
        queue, _ = await store.queues.create("queue", QueueSettings())
        await store.send([draft(queue, b"kept")])
        server.kill()
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await store.send([draft(queue)])
        server.start()
        (message,) = await eventually(lambda: store.claim(claim(queue)))
        assert message.body == b"kept"


async def test_a_read_only_database_is_unavailable(store_fixture: PostgresqlFixture, queue: Queue) -> None:
    (name,) = (await store_fixture.execute("SELECT current_database()"))[0]
    await store_fixture.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        with pytest.raises(StoreUnavailable):
            await open_store(store_fixture._url, SystemClock())
    finally:
        connection = await asyncpg.connect(store_fixture._url)
        await connection.execute("SET default_transaction_read_only = off")
        await connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await connection.close()


async def test_connections_to_a_server_that_became_read_only_are_replaced(
    private_server: Callable[..., ServerProcess],
) -> None:
    server = private_server(PostgresServer)
    await asyncio.to_thread(migrate, server.url)
    async with opened(server.url) as store:
        await store.acquire_exclusive()
        queue, _ = await store.queues.create("queue", QueueSettings())
        await store.check_writable()
        await set_read_only(server.url, "on")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="accepts no writes"):
                await store.check_writable()
            with pytest.raises(StoreUnavailable, match="accepts no writes"):
                await store.send([draft(queue)])
        await until_disconnected(server.url)
        await set_read_only(server.url, "off")
        await store.check_writable()
        await store.send([draft(queue)])


async def set_read_only(url: str, value: str) -> None:
    """Make all sessions of a server read-only, as failover tools do with a former primary."""
    connection = await asyncpg.connect(url)
    await connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    await connection.execute("SELECT pg_reload_conf()")
    await until(connection, f"SELECT current_setting('default_transaction_read_only') = '{value}'")
    await connection.close()


async def until_disconnected(url: str) -> None:
    """Return once the service has no connection to this server, not even that of its lock."""
    connection = await asyncpg.connect(url)
    await until(connection, "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'peeklock'")
    await connection.close()


async def until(connection: Any, question: str) -> None:
    """Return once the answer is yes. A minute is too long."""
    async with asyncio.timeout(60):
        while True:
            if await connection.fetchval(question):
                return
            await asyncio.sleep(0.02)


async def test_an_unreachable_server_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        await open_store("postgresql://peeklock@127.0.0.1:1/peeklock", SystemClock())


async def test_a_statement_waits_a_few_seconds_at_most_for_a_locked_row(
    store_fixture: PostgresqlFixture, queue: Queue
) -> None:
    async with store_fixture.open_transaction("SELECT FROM queue FOR UPDATE"):
        with pytest.raises(StoreUnavailable):
            await store_fixture.store.queues.change(queue, QueueSettings(max_delivery_count=3))
    assert await store_fixture.store.queues.change(queue, QueueSettings(max_delivery_count=3)) is not None


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (asyncpg.DiskFullError("no space left on device"), DiskNotWritable),
        (asyncpg.TooManyConnectionsError("sorry, too many clients already"), StoreUnavailable),
        (asyncpg.AdminShutdownError("terminating connection"), StoreUnavailable),
        (asyncpg.CannotConnectNowError("the database system is starting up"), StoreUnavailable),
        (asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT"), StoreUnavailable),
        (asyncpg.QueryCanceledError("canceling statement due to statement timeout"), StoreUnavailable),
        (asyncpg.InvalidPasswordError("password authentication failed"), StoreUnavailable),
        (ConnectionResetError(), StoreUnavailable),
        (TimeoutError(), StoreUnavailable),
        (asyncpg.LockNotAvailableError("canceling statement due to lock timeout"), LockWaitTimeout),
        (asyncpg.DeadlockDetectedError("deadlock detected"), TransactionConflict),
        (asyncpg.SerializationError("could not serialize access"), TransactionConflict),
        (asyncpg.UndefinedTableError("relation does not exist"), asyncpg.UndefinedTableError),
        (asyncpg.DataError("value out of range"), asyncpg.DataError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_driver_error_becomes_an_error_of_the_store(error: Exception, meaning: type[Exception]) -> None:
    with pytest.raises(meaning) as raised, translate_errors():
        raise error
    if isinstance(raised.value, StoreUnavailable):  # which a client receives
        assert str(raised.value).startswith(("The database", "The disk of the database", "Another transaction"))
        assert str(error) not in str(raised.value) or not str(error)
