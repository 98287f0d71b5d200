"""Runs migrations on PostgreSQL."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateIndex, CreateTable

from app.domain.refusals import StoreUnavailable
from app.store.postgresql.connect import connect, parse_address
from app.store.postgresql.session import DriverConnection
from app.store.url import StoreUrl

# The letters of "peeklock". PostgreSQL's advisory lock takes any number that no other program uses.
LOCK_NUMBER = int.from_bytes(b"peeklock")
LOCK_POLL_SECONDS = 0.5

LOCK_TIMEOUTS = {"55P03", "40P01"}
"""The errors for a timeout of a lock, and for a deadlock with a server's statement."""

INVALID_INDEXES = """
SELECT quote_ident(pg_class.relname)
FROM pg_index
JOIN pg_class ON pg_class.oid = pg_index.indexrelid
JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE NOT pg_index.indisvalid AND pg_namespace.nspname = current_schema()
"""
"""Indexes whose construction was interrupted. The migrations would take them for complete."""

OLDEST_TRANSACTION = """
SELECT activity.pid, activity.usename, activity.application_name, activity.xact_start, held.table_name
FROM pg_stat_activity AS activity
LEFT JOIN (
    SELECT pg_locks.pid, MIN(pg_class.relname) AS table_name
    FROM pg_locks
    JOIN pg_class ON pg_class.oid = pg_locks.relation
    JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
    WHERE pg_locks.granted AND pg_class.relkind = 'r' AND pg_namespace.nspname = current_schema()
    GROUP BY pg_locks.pid
) AS held ON held.pid = activity.pid
WHERE activity.datname = current_database()
  AND activity.pid <> pg_backend_pid()
  AND (activity.xact_start IS NOT NULL OR held.pid IS NOT NULL)
ORDER BY held.pid IS NULL, activity.xact_start NULLS LAST
LIMIT 1
"""
"""The oldest transaction that uses a table of this schema, or else any other one, because the last step of building an index
waits for all of them. Only a privileged role sees when transactions of other roles began."""

Result = TypeVar("Result")


class Limits(NamedTuple):
    """How long steps wait for a lock: one that makes servers wait, and one that does not."""

    try_seconds: int
    wait_seconds: int


def run(url: StoreUrl, work: Callable[[Connection], Result]) -> Result:
    """Run the work on a connection and an event loop of its own. What the work does not commit is undone."""
    try:
        return asyncio.run(_run(url, work))
    except OSError as error:
        raise StoreUnavailable("The database cannot be reached.") from error


async def _run(url: StoreUrl, work: Callable[[Connection], Result]) -> Result:
    server_address = parse_address(url.text)

    # Use the driver of the service, which reads the URL as the service does.
    async def open_connection() -> DriverConnection:
        # Building an index of a large table takes long. Keep-alive detects a server that has vanished.
        return await connect(server_address, answer_seconds=None)

    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=open_connection,
        poolclass=NullPool,
        execution_options={"is_pooled": server_address.is_pooled},
    )
    event.listen(engine.sync_engine, "before_execute", _before_step)
    event.listen(engine.sync_engine, "after_execute", _after_step)
    async with engine.connect() as connection:
        return await connection.run_sync(work)


def prepare(connection: Connection, try_seconds: int, wait_seconds: int) -> None:
    """Lock out other migrations, and limit how long a step waits for a lock.

    Each step is a transaction of its own, so it holds no lock while the next one waits. A pooler may give each transaction
    another server session, so behind a pooler all steps are one transaction.
    """
    if connection.get_execution_options()["is_pooled"]:
        _limit(connection, "SET LOCAL", try_seconds)
        _acquire(connection, "pg_try_advisory_xact_lock", wait_seconds)
        return
    connection.execution_options(isolation_level="AUTOCOMMIT", limits=Limits(try_seconds, wait_seconds))
    _limit(connection, "SET", try_seconds)
    _acquire(connection, "pg_try_advisory_lock", wait_seconds)
    for index in connection.execute(text(INVALID_INDEXES)).scalars().all():
        connection.execute(text(f"DROP INDEX {index}"))


def refuse_served(_connection: Connection) -> None:
    """See `Migration`. Refuses nothing: servers may run during a migration."""


def is_lock_timeout(error: DBAPIError) -> bool:
    """See `Migration`."""
    return getattr(error.orig, "sqlstate", None) in LOCK_TIMEOUTS


def blocking_session(connection: Connection) -> str:
    """See `Migration`."""
    oldest = connection.execute(text(OLDEST_TRANSACTION)).first()
    if oldest is None:
        return "no session holds the lock any more, or a prepared transaction does (pg_prepared_xacts)"
    pid, user, application, began_at, table = oldest
    since = f" since {began_at:%Y-%m-%d %H:%M:%S} UTC" if began_at else ""
    uses = f" that uses the table {table}" if table else ""
    return f"session {pid} (user {user}, application {application or 'unknown'}) has a transaction open{since}{uses}"


def _limit(connection: Connection, command: str, try_seconds: int) -> None:
    # The service's timeouts are for statements that take milliseconds.
    connection.execute(text(f"{command} statement_timeout = 0"))
    connection.execute(text(f"{command} idle_in_transaction_session_timeout = 0"))
    connection.execute(text(f"{command} lock_timeout = '{try_seconds}s'"))


def _acquire(connection: Connection, function: str, wait_seconds: int) -> None:
    """Take the advisory lock by asking repeatedly. A statement that waits for it would hold a snapshot, and the building of
    an index waits for all snapshots."""
    give_up_at = time.monotonic() + wait_seconds
    while not connection.scalar(text(f"SELECT {function}(:number)"), {"number": LOCK_NUMBER}):
        if time.monotonic() >= give_up_at:
            raise StoreUnavailable(f"Another process has been migrating this database for {wait_seconds} s.")
        time.sleep(LOCK_POLL_SECONDS)


def _before_step(connection: Connection, step: Any, *_: Any) -> None:
    """Build an index of an existing table while servers write. Such a step may wait longer, because it blocks no statement."""
    limits = connection.get_execution_options().get("limits")
    if limits is None:
        return
    if isinstance(step, CreateTable):
        connection.info.setdefault("new_tables", set()).add(step.element.name)
    elif _is_index_of_existing_table(connection, step):
        step.element.dialect_options["postgresql"]["concurrently"] = True
        connection.exec_driver_sql(f"SET lock_timeout = '{limits.wait_seconds}s'")


def _is_index_of_existing_table(connection: Connection, step: Any) -> bool:
    return isinstance(step, CreateIndex) and str(step.element.table) not in connection.info.get("new_tables", ())


def _after_step(connection: Connection, step: Any, *_: Any) -> None:
    limits = connection.get_execution_options().get("limits")
    if limits is not None and isinstance(step, CreateIndex):
        connection.exec_driver_sql(f"SET lock_timeout = '{limits.try_seconds}s'")
