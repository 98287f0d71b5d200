"""Migrates the tables of a database to the schema of this version of the service."""

import sqlite3
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from threading import Lock
from typing import Protocol, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from app.domain.refusals import StoreUnavailable
from app.store.revisions import MIGRATIONS, revisions
from app.store.url import Engine, StoreUrl, read_url

LOCK_TIMEOUT_SECONDS = 120
"""How long a migration waits for another one. Each takes far less time."""

ALEMBIC_LOCK = Lock()
"""Serializes runs of Alembic, which keeps its state in globals."""

Result = TypeVar("Result")


class SchemaStatus(Enum):
    """How the tables of a database compare with this version of the service."""

    BEHIND = auto()
    """The tables lack a migration."""
    CURRENT = auto()
    AHEAD = auto()
    """A newer version has migrated the tables. What it added does not disturb this version."""


class DatabaseIsNewer(Exception):
    """A newer version has migrated this database. This version has nothing to add and changes nothing."""


def migrate(url: str) -> None:
    """Create or change the tables until they have the current schema. Concurrent migrations run one after the other.

    For PostgreSQL this runs an event loop of its own, so a coroutine calls it in a thread. An interrupted migration is
    undone on PostgreSQL and SQLite. On MariaDB and MySQL a repeat continues where it stopped. Refuses with
    `DatabaseIsNewer` if the tables are of a newer version.
    """
    store_url = read_url(url)
    migration = _migration(store_url.engine)
    _run(store_url, partial(_upgrade, lock=migration.lock))


def migrate_sqlite(connection: sqlite3.Connection) -> None:
    """Migrate over an open connection, the only way to reach a database in memory."""
    from app.store.sqlite import migration

    migration.run_on(connection, partial(_upgrade, lock=migration.lock))


def schema_status(url: str) -> SchemaStatus:
    """Compare the tables with this version, by the revision that the last migration left. Changes nothing."""
    store_url = read_url(url)
    # Opening a SQLite file that does not exist would create it.
    missing = store_url.engine is Engine.SQLITE and not (store_url.path and store_url.path.exists())
    return SchemaStatus.BEHIND if missing else run_on_connection(url, _schema_status)


def configuration(connection: Connection | None = None) -> Config:
    """Return Alembic's settings: the folder of migrations, and the connection they run on."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


def _upgrade(connection: Connection, lock: Callable[[Connection, int], None]) -> None:
    lock(connection, LOCK_TIMEOUT_SECONDS)
    if _schema_status(connection) is SchemaStatus.AHEAD:
        raise DatabaseIsNewer(
            "A newer version has migrated the tables of this database. This version has nothing to do and changed nothing."
        )
    with ALEMBIC_LOCK:
        command.upgrade(configuration(connection), "head")
    connection.commit()


def _schema_status(connection: Connection) -> SchemaStatus:
    """Compare by revision. An unknown revision comes from a newer version."""
    revision = MigrationContext.configure(connection).get_current_revision()
    known = revisions()
    if revision == known[-1]:
        return SchemaStatus.CURRENT
    return SchemaStatus.BEHIND if revision is None or revision in known else SchemaStatus.AHEAD


class Migration(Protocol):
    """The interface of each engine's module `migration`."""

    def run(self, url: StoreUrl, work: Callable[[Connection], Result]) -> Result:
        """Run the work on a connection of its own. What the work does not commit is undone."""
        ...

    def lock(self, connection: Connection, timeout_seconds: int, /) -> None:
        """Lock out other migrations of this database."""
        ...


def run_on_connection(url: str, work: Callable[[Connection], Result]) -> Result:
    """Run the work on a connection of its own. What the work does not commit is undone.

    Refuses with `BadStoreUrl`, or with `StoreUnavailable` if the database cannot do it.
    """
    return _run(read_url(url), work)


def _run(url: StoreUrl, work: Callable[[Connection], Result]) -> Result:
    try:
        return _migration(url.engine).run(url, work)
    except DBAPIError as error:
        raise StoreUnavailable(f"The database refuses a migration: {error.orig}.") from None


def _migration(engine: Engine) -> Migration:
    # Imported here, so that only the driver of the named engine is loaded.
    match engine:
        case Engine.POSTGRESQL:
            from app.store.postgresql import migration
        case Engine.MYSQL:
            from app.store.mysql import migration
        case Engine.SQLITE:
            from app.store.sqlite import migration
    return migration
