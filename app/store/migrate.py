"""Brings the tables of a database up to what this version of the service needs."""

import asyncio
import sqlite3
from collections.abc import Callable
from enum import Enum, auto
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy import Engine as SyncEngine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool, StaticPool

from app.domain.refusals import StoreUnavailable
from app.store.sqlite_file import make_private
from app.store.statements import Engine
from app.store.url import NEEDS_CRYPTOGRAPHY, BadStoreUrl, read_url

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"

# Whoever migrates waits for another one at most so long; each migration takes far less.
LOCK_TIMEOUT_SECONDS = 120
# Any number will do for PostgreSQL's advisory lock, so long as nobody else uses it: the letters of "peeklock".
LOCK_NUMBER = int.from_bytes(b"peeklock")
LOCK_NAME = "peeklock migrations"

# Alembic keeps what it is doing in globals, so the threads of one process take turns as well.
ALEMBIC_LOCK = Lock()

Result = TypeVar("Result")


class MigrationsMissing(Exception):
    """The migrations lie beside the service's code, and are not there."""


class SchemaStatus(Enum):
    """How a database's tables stand to this version of the service."""

    BEHIND = auto()
    """They lack a migration."""
    CURRENT = auto()
    AHEAD = auto()
    """A newer version has migrated them; what it added is nothing that this one would miss."""


class DatabaseIsNewer(Exception):
    """A newer version has migrated this database; this one has nothing to add and has changed nothing."""


def migrate(url: str) -> None:
    """Create or change the tables until they are today's; two who do this at once take turns.

    Runs an event loop of its own for PostgreSQL, so a coroutine calls it in a thread. A migration that is cut off
    is undone on PostgreSQL and SQLite; on MariaDB and MySQL repeating it goes on where it stood. Refuses with
    `DatabaseIsNewer` where it would have to go back.
    """
    run_on_connection(url, _upgrade)


def migrate_sqlite(connection: sqlite3.Connection) -> None:
    """The same for an open connection, by which alone a database in memory can be reached."""
    engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
    _begin_immediate(engine)
    _run_on_engine(engine, _upgrade)


def schema_status(url: str) -> SchemaStatus:
    """How the tables stand to this version, by the mark that the last migration left. Changes nothing."""
    store_url = read_url(url)
    # Looking into a file that is not there would make it.
    missing = store_url.engine is Engine.SQLITE and not (store_url.path and store_url.path.exists())
    return SchemaStatus.BEHIND if missing else run_on_connection(url, _schema_status)


def configuration(connection: Connection | None = None) -> Config:
    """Alembic's settings: where the migrations lie, and the connection they run on."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


def _upgrade(connection: Connection) -> None:
    _lock_migrations(connection)
    if _schema_status(connection) is SchemaStatus.AHEAD:
        raise DatabaseIsNewer(
            "The tables of this database are of a newer version than this one; there is nothing to do, and nothing was "
            "changed."
        )
    with ALEMBIC_LOCK:
        command.upgrade(configuration(connection), "head")
    connection.commit()


def _schema_status(connection: Connection) -> SchemaStatus:
    """A revision that is not known here was made by a newer version."""
    revision = MigrationContext.configure(connection).get_current_revision()
    known = sorted(path.name.partition("_")[0] for path in MIGRATIONS.glob("versions/[0-9]*_*.py"))
    if not known:
        raise MigrationsMissing(f"there are no migrations in {MIGRATIONS}")
    if revision == known[-1]:
        return SchemaStatus.CURRENT
    return SchemaStatus.BEHIND if revision is None or revision in known else SchemaStatus.AHEAD


def _lock_migrations(connection: Connection) -> None:
    """Take the lock of whoever migrates; the end of the transaction (MariaDB: of the connection) gives it back.

    SQLite needs none: its transaction has begun as the only writer.
    """
    match connection.dialect.name:
        case "postgresql":
            _lock_postgresql(connection)
        case "mysql" | "mariadb":
            _lock_mysql(connection)
        case _:
            pass


def _lock_postgresql(connection: Connection) -> None:
    # The service's own limits are for statements that take milliseconds.
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
    connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": LOCK_NUMBER})


def _lock_mysql(connection: Connection) -> None:
    # The name counts for the whole server, so it says which database is meant; it may have 64 characters.
    query = text("SELECT GET_LOCK(CONCAT(:name, ' ', MD5(DATABASE())), :seconds)")
    values = {"name": LOCK_NAME, "seconds": LOCK_TIMEOUT_SECONDS}
    if connection.execute(query, values).scalar() != 1:
        raise StoreUnavailable(f"Another process has been migrating this database for {LOCK_TIMEOUT_SECONDS} s.")


def run_on_connection(url: str, work: Callable[[Connection], Result]) -> Result:
    """Do the work on a connection of its own; what it does not commit is undone.

    Refuses with `BadStoreUrl`, or with `StoreUnavailable` where the database cannot do it.
    """
    store_url = read_url(url)
    try:
        match store_url.engine:
            case Engine.POSTGRESQL:
                return asyncio.run(_run_on_postgresql(url, work))
            case Engine.MYSQL:
                # Refuses what the other driver would break off at.
                import_module("app.store.mysql_connect").driver_options(url)
                return _run_on_engine(create_engine(_mysql_url(url), poolclass=NullPool), work)
            case Engine.SQLITE:
                return _run_on_engine(_sqlite_engine(store_url.path), work)
    except RuntimeError as error:
        if "cryptography" not in str(error):
            raise
        raise BadStoreUrl(NEEDS_CRYPTOGRAPHY) from error
    except DBAPIError as error:
        raise StoreUnavailable(f"The database does not do what the migrations ask: {error.orig}.") from error


async def _run_on_postgresql(url: str, work: Callable[[Connection], Result]) -> Result:
    """Do the work over the one driver of PostgreSQL that the service has, which reads the URL as it does for it."""
    postgresql = import_module("app.store.postgresql_session")

    async def connect() -> Any:
        return await postgresql.connect(postgresql.parse_address(url))

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    async with engine.connect() as connection:
        return await connection.run_sync(work)


def _run_on_engine(engine: SyncEngine, work: Callable[[Connection], Result]) -> Result:
    with engine.connect() as connection:
        return work(connection)


def _mysql_url(url: str) -> URL:
    return make_url(url).set(drivername="mysql+pymysql")


def _sqlite_engine(path: Path | None) -> SyncEngine:
    if path:
        make_private(path)
    address = URL.create("sqlite", database=str(path) if path else None)
    engine = create_engine(address, poolclass=NullPool, connect_args={"timeout": LOCK_TIMEOUT_SECONDS})
    _begin_immediate(engine)
    return engine


def _begin_immediate(engine: SyncEngine) -> None:
    """Make a transaction begin with its first statement, and at once as the only writer.

    Left alone, the driver would begin one before neither a table nor a question, and no migration could be undone.
    """

    def disable_autobegin(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", disable_autobegin)
    event.listen(engine, "begin", begin)
