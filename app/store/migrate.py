"""Brings the tables of a database up to what this version of the service needs."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool, StaticPool

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"

# Whoever migrates waits for another one at most so long; each migration takes far less.
PATIENCE_SECONDS = 120
# Any number will do for PostgreSQL's advisory lock, so long as nobody else uses it: the letters of "peeklock".
LOCK_NUMBER = int.from_bytes(b"peeklock")
LOCK_NAME = "peeklock migrations"

# Alembic keeps what it is doing in globals, so the threads of one process take turns as well.
ONE_AT_A_TIME = Lock()

Answer = TypeVar("Answer")


class MigrationsMissing(Exception):
    """The migrations lie beside the service's code, and are not there."""


def migrate(url: str) -> None:
    """Create or change the tables until they are today's; two who do this at once take turns.

    Runs an event loop of its own for PostgreSQL, so a coroutine calls it in a thread. A migration that is cut off
    is undone on PostgreSQL and SQLite; on MariaDB and MySQL repeating it goes on where it stood.
    """
    on_connection(url, _upgrade)


def migrate_sqlite(connection: sqlite3.Connection) -> None:
    """The same for an open connection, by which alone a database in memory can be reached."""
    engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
    _begin_as_only_writer(engine)
    _on_engine(engine, _upgrade)


def is_current(url: str) -> bool:
    """Whether the tables are exactly today's, by the mark that the last migration left. Changes nothing."""
    return on_connection(url, _is_current)


def configuration(connection: Connection | None = None) -> Config:
    """Alembic's settings: where the migrations lie, and the connection they run on."""
    if not MIGRATIONS.is_dir():
        raise MigrationsMissing(f"there is no folder {MIGRATIONS}")
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    return config


def _upgrade(connection: Connection) -> None:
    _wait_for_turn(connection)
    with ONE_AT_A_TIME:
        command.upgrade(configuration(connection), "head")
    connection.commit()


def _is_current(connection: Connection) -> bool:
    present = MigrationContext.configure(connection).get_current_heads()
    return set(present) == set(ScriptDirectory.from_config(configuration()).get_heads())


def _wait_for_turn(connection: Connection) -> None:
    """Take the lock of whoever migrates; the end of the transaction (MariaDB: of the connection) gives it back.

    SQLite needs none: its transaction has begun as the only writer.
    """
    match connection.dialect.name:
        case "postgresql":
            connection.execute(text(f"SET LOCAL lock_timeout = '{PATIENCE_SECONDS}s'"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": LOCK_NUMBER})
        case "mysql" | "mariadb":
            # The name counts for the whole server, so it says which database is meant; it may have 64 characters.
            question = text("SELECT GET_LOCK(CONCAT(:name, ' ', MD5(DATABASE())), :seconds)")
            values = {"name": LOCK_NAME, "seconds": PATIENCE_SECONDS}
            if connection.execute(question, values).scalar() != 1:
                raise TimeoutError(f"somebody else has been migrating this database for {PATIENCE_SECONDS} s")
        case _:
            pass


def on_connection(url: str, work: Callable[[Connection], Answer]) -> Answer:
    """Do the work on a connection of its own; what it does not commit is undone."""
    address = make_url(url)
    match address.get_backend_name():
        case "postgresql":
            return asyncio.run(_on_postgresql(url, work))
        case "sqlite":
            return _on_engine(_sqlite(address), work)
        case _:
            return _on_engine(create_engine(address.set(drivername="mysql+pymysql"), poolclass=NullPool), work)


async def _on_postgresql(url: str, work: Callable[[Connection], Answer]) -> Answer:
    """Do the work over asyncpg, the one driver the service has, which reads the URL as it does for the service."""

    async def connect() -> Any:
        return await asyncpg.connect(url)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    async with engine.connect() as connection:
        return await connection.run_sync(work)


def _on_engine(engine: Engine, work: Callable[[Connection], Answer]) -> Answer:
    with engine.connect() as connection:
        return work(connection)


def _sqlite(address: URL) -> Engine:
    engine = create_engine(
        address.set(drivername="sqlite"), poolclass=NullPool, connect_args={"timeout": PATIENCE_SECONDS}
    )
    _begin_as_only_writer(engine)
    return engine


def _begin_as_only_writer(engine: Engine) -> None:
    """Make a transaction begin with its first statement, and at once as the only writer.

    Left alone, the driver would begin one before neither a table nor a question, and no migration could be undone.
    """

    def leave_transactions_to_us(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", leave_transactions_to_us)
    event.listen(engine, "begin", begin)
