"""Checks whether the tables of a database are current, without loading what could change them."""

from pathlib import Path

from app.runtime.clock import SystemClock
from app.store.open import open_store
from app.store.url import Engine, read_url

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"


async def is_current(url: str) -> bool:
    """Return whether the tables have exactly the current revision. Changes nothing.

    Refuses as `open_store` does. If the answer is no, `migrate.schema_status` gives the reason. It loads Alembic, which
    then stays in the memory of a server for good.
    """
    store_url = read_url(url)
    # Opening a SQLite file that does not exist would create it.
    if store_url.engine is Engine.SQLITE and not (store_url.path and store_url.path.exists()):
        return False
    store = await open_store(url, SystemClock(), 1)
    try:
        return await store.schema_revision() == newest_migration()
    finally:
        await store.close()


def newest_migration() -> str | None:
    """Return the number that the last migration's file name begins with, which is its revision in the tables."""
    names = [path.name for path in MIGRATIONS.glob("versions/[0-9]*_*.py")]
    return max(names).partition("_")[0] if names else None
