"""Whether the tables of a database are today's, asked without what it takes to change them."""

from pathlib import Path

from app.runtime.clock import SystemClock
from app.store.open import open_store
from app.store.url import Engine, read_url

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"


async def is_current(url: str) -> bool:
    """Whether the tables are exactly today's, by the mark that the last migration left. Changes nothing.

    Refuses as `open_store` does. Where the answer is no, `migrate.standing` says more; it brings Alembic along, which
    then stays in the memory of a server for good.
    """
    store_url = read_url(url)
    # Looking into a file that is not there would make it.
    if store_url.engine is Engine.SQLITE and not (store_url.path and store_url.path.exists()):
        return False
    store = await open_store(url, SystemClock(), 1)
    try:
        return await store.schema_revision() == newest_migration()
    finally:
        await store.close()


def newest_migration() -> str | None:
    """The number with which the name of the last migration begins, and by which the tables know it."""
    names = [path.name for path in MIGRATIONS.glob("versions/[0-9]*_*.py")]
    return max(names).partition("_")[0] if names else None
