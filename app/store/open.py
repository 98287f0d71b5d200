"""Opens the message store at a URL; imports only the engine that the URL names."""

import sqlite3

from app.broker.ports.store import Store
from app.runtime.clock import Clock
from app.store.shared.database import BatchObserver
from app.store.url import BadStoreUrl, EngineName, read_url

__all__ = ["BadStoreUrl", "open_store"]


def ignore_batches(_statement: str, _entries: int) -> None:
    """Observe nothing."""


async def open_store(url: str, clock: Clock, connections: int = 8, observe: BatchObserver = ignore_batches) -> Store:
    """Open the store at a URL that `read_url` accepts.

    `clock` is the clock of a SQLite database. A server has its own clock, and `clock` reads this process's time beside
    it. `connections` is the number of connections to a server. `observe` is called for every batch of callers. Refuses
    with `BadStoreUrl`, with `StoreUnavailable`, or with `FileInUse` if another process serves the SQLite file.
    """
    store_url = read_url(url)
    # Imported here, so that only the driver of the named engine is loaded.
    match store_url.engine:
        case EngineName.SQLITE:
            from app.store.sqlite.store import open_sqlite

            return await open_sqlite(store_url.path, clock, observe, create_tables)
        case EngineName.POSTGRESQL:
            from app.store.postgresql.store import open_postgresql

            return await open_postgresql(url, clock, connections, observe)
        case EngineName.MYSQL:
            from app.store.mysql.store import open_mysql

            return await open_mysql(url, clock, connections, observe)


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a database in memory."""
    # Imported here, because Alembic takes longer to load than most commands take to run.
    from app.store.migrate import migrate_sqlite

    migrate_sqlite(connection)
