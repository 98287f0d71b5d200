"""Opens the message store that a URL names; only the engine that is named is imported."""

from importlib import import_module

from app.broker.ports import Store
from app.runtime.clock import Clock
from app.store.database import BatchObserver
from app.store.statements import Engine
from app.store.url import BadStoreUrl, read_url

__all__ = ["BadStoreUrl", "open_store"]


def ignore_batches(_statement: str, _entries: int) -> None:
    """Hear of batches and tell nobody."""


async def open_store(url: str, clock: Clock, connections: int = 8, observe: BatchObserver = ignore_batches) -> Store:
    """Open the store at a URL as `read_url` reads it.

    `clock` is the clock of a SQLite database; servers have their own, beside which the time of this process is taken.
    `connections` are to a server. `observe` hears
    of every group of callers that were served at once. Refuses with `BadStoreUrl`, `StoreUnavailable` or, where
    another process serves the SQLite file, `FileInUse`.
    """
    store_url = read_url(url)
    engine = import_module(f"app.store.{store_url.engine}")
    match store_url.engine:
        case Engine.SQLITE:
            return await engine.open_sqlite(store_url.path, clock, observe)
        case Engine.POSTGRESQL:
            return await engine.open_postgresql(url, clock, connections, observe)
        case Engine.MYSQL:
            return await engine.open_mysql(url, clock, connections, observe)
