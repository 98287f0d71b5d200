"""Brings the tables of a database up to what this version of the service needs."""

import sqlite3
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Protocol, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from app.domain.refusals import StoreUnavailable
from app.store.url import Engine, StoreUrl, read_url

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"

LOCK_TIMEOUT_SECONDS = 120
"""How long a migration waits for another one. Each takes far less."""

ALEMBIC_LOCK = Lock()
"""Held while Alembic runs, because it keeps its state in globals."""

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
    store_url = read_url(url)
    migration = _migration(store_url.engine)
    _run(store_url, partial(_upgrade, lock=migration.lock))


def migrate_sqlite(connection: sqlite3.Connection) -> None:
    """The same for an open connection, by which alone a database in memory can be reached."""
    from app.store.sqlite import migration

    migration.run_on(connection, partial(_upgrade, lock=migration.lock))


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


def _upgrade(connection: Connection, lock: Callable[[Connection, int], None]) -> None:
    lock(connection, LOCK_TIMEOUT_SECONDS)
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


class Migration(Protocol):
    """What the module `migration` of an engine offers."""

    def run(self, url: StoreUrl, work: Callable[[Connection], Result]) -> Result:
        """Run the work on a connection of its own; what it does not commit is undone."""
        ...

    def lock(self, connection: Connection, timeout_seconds: int, /) -> None:
        """Lock out other migrations of this database."""
        ...


def run_on_connection(url: str, work: Callable[[Connection], Result]) -> Result:
    """Run the work on a connection of its own; what it does not commit is undone.

    Refuses with `BadStoreUrl`, or with `StoreUnavailable` where the database cannot do it.
    """
    return _run(read_url(url), work)


def _run(url: StoreUrl, work: Callable[[Connection], Result]) -> Result:
    try:
        return _migration(url.engine).run(url, work)
    except DBAPIError as error:
        raise StoreUnavailable(f"The database does not do what the migrations ask: {error.orig}.") from error


def _migration(engine: Engine) -> Migration:
    # Imported here, so that only the driver of the engine that is named is loaded.
    match engine:
        case Engine.POSTGRESQL:
            from app.store.postgresql import migration
        case Engine.MYSQL:
            from app.store.mysql import migration
        case Engine.SQLITE:
            from app.store.sqlite import migration
    return migration
