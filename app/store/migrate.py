"""Migrates the tables of a database to the schema of this version of the service."""

import sqlite3
import time
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
from app.store.url import EngineName, StoreUrl, read_url

TRY_SECONDS = 2
"""How long one step waits for a lock. Meanwhile, statements of the servers wait behind it, and give up after 3 s."""

PAUSE_SECONDS = 5.0
"""How long the migration pauses between two tries, so that the servers' statements can run."""

GIVE_UP_SECONDS = 120
"""How long a migration tries, and how long it waits for another one."""

ALEMBIC_LOCK = Lock()
"""Serializes runs of Alembic, which keeps its state in globals."""

Result = TypeVar("Result")


def _ignore(_sentence: str) -> None:
    """Report no progress."""


class SchemaStatus(Enum):
    """How the tables of a database compare with this version of the service."""

    BEHIND = auto()
    """The tables lack a migration."""
    CURRENT = auto()
    AHEAD = auto()
    """A newer version has migrated the tables. What it added does not disturb this version."""


class DatabaseIsNewer(Exception):
    """A newer version has migrated this database. This version has nothing to add and changes nothing."""


def migrate(url: str, report: Callable[[str], None] = _ignore, give_up_seconds: int = GIVE_UP_SECONDS) -> None:
    """Create or change the tables until they have the current schema. Concurrent migrations run one after the other.

    Servers may run meanwhile: no step blocks them for longer than `TRY_SECONDS`. A step that gets no lock in this time is
    tried again after a pause, and `report` receives a sentence that names the session that holds the lock. After
    `give_up_seconds` the migration raises `StoreUnavailable`.

    For PostgreSQL this runs an event loop of its own, so a coroutine calls it in a thread. An interrupted migration is
    undone on SQLite and behind a pooler. Elsewhere each step is committed, and a repeat continues where it stopped.
    Refuses with `DatabaseIsNewer` if the tables are of a newer version, and with `FileInUse` if a process serves a SQLite
    file that lacks a migration.
    """
    store_url = read_url(url)
    migration = _migration(store_url.engine)
    _run(store_url, partial(_upgrade, migration=migration, report=report, give_up_seconds=give_up_seconds))


def migrate_sqlite(connection: sqlite3.Connection) -> None:
    """Migrate over an open connection, the only way to reach a database in memory."""
    from app.store.sqlite import migration

    migration.run_on(connection, partial(_try_upgrade, migration=migration, wait_seconds=0))


def schema_status(url: str) -> SchemaStatus:
    """Compare the tables with this version, by the revision that the last migration left. Changes nothing."""
    store_url = read_url(url)
    # Opening a SQLite file that does not exist would create it.
    missing = store_url.engine is EngineName.SQLITE and not (store_url.path and store_url.path.exists())
    return SchemaStatus.BEHIND if missing else run_on_connection(url, _schema_status)


def configuration(connection: Connection | None = None) -> Config:
    """Return Alembic's settings: the folder of migrations, and the connection they run on."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


def _upgrade(
    connection: Connection, migration: "Migration", report: Callable[[str], None], give_up_seconds: int
) -> None:
    give_up_at = time.monotonic() + give_up_seconds
    reported = None
    while (blocker := _try_upgrade(connection, migration, give_up_seconds)) is not None:
        if time.monotonic() >= give_up_at:
            raise StoreUnavailable(
                f"The migration is not finished. It got no lock on a table, and does not block the servers for longer: "
                f"{blocker}. End that session or wait for it, and run `peeklock migrate` again. It continues where it stopped."
            )
        if blocker != reported:
            report(f"The migration waits and tries again: {blocker}.")
            reported = blocker
        time.sleep(PAUSE_SECONDS)


def _try_upgrade(connection: Connection, migration: "Migration", wait_seconds: int) -> str | None:
    """Upgrade the tables. If a step got no lock in time, return a clause about the session that holds it."""
    try:
        migration.prepare(connection, TRY_SECONDS, wait_seconds)
        status = _schema_status(connection)
        if status is SchemaStatus.AHEAD:
            raise DatabaseIsNewer(
                "A newer version has migrated the tables of this database. This version has nothing to do and changed "
                "nothing."
            )
        if status is SchemaStatus.BEHIND:
            migration.refuse_served(connection)
        with ALEMBIC_LOCK:
            command.upgrade(configuration(connection), "head")
        connection.commit()
    except DBAPIError as error:
        connection.rollback()
        if not migration.is_lock_timeout(error):
            raise
        blocker = migration.blocking_session(connection)
        connection.rollback()  # ends the transaction of this query, so that the next try begins its own
        return blocker
    return None


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

    def prepare(self, connection: Connection, try_seconds: int, wait_seconds: int, /) -> None:
        """Lock out other migrations of this database, and let each step wait at most `try_seconds` for a lock.

        Refuses with `StoreUnavailable` if another migration takes longer than `wait_seconds`.
        """
        ...

    def refuse_served(self, connection: Connection, /) -> None:
        """Refuse with `FileInUse` a SQLite file that a process serves. Database servers are migrated while servers run."""
        ...

    def is_lock_timeout(self, error: DBAPIError, /) -> bool:
        """Return whether a step failed because it got no lock in time. Such a step had no effect."""
        ...

    def blocking_session(self, connection: Connection, /) -> str:
        """Return a clause about the session that holds the lock."""
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


def _migration(engine: EngineName) -> Migration:
    # Imported here, so that only the driver of the named engine is loaded.
    match engine:
        case EngineName.POSTGRESQL:
            from app.store.postgresql import migration
        case EngineName.MYSQL:
            from app.store.mysql import migration
        case EngineName.SQLITE:
            from app.store.sqlite import migration
    return migration
