"""Checks whether the tables of a database are current, without loading what could change them."""

from app.runtime.clock import SystemClock
from app.store.open import open_store
from app.store.revisions import revisions
from app.store.url import EngineName, read_url


async def is_current(url: str) -> bool:
    """Return whether the tables have exactly the current revision. Changes nothing.

    Refuses as `open_store` does. If the answer is no, `migrate.schema_status` gives the reason. It loads Alembic, which
    then stays in the memory of a server for good.
    """
    store_url = read_url(url)
    # Opening a SQLite file that does not exist would create it.
    if store_url.engine is EngineName.SQLITE and not (store_url.path and store_url.path.exists()):
        return False
    store = await open_store(url, SystemClock(), 1)
    try:
        return await store.schema_revision() == revisions()[-1]
    finally:
        await store.close()
