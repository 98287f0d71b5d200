"""Lock versions: the first process that registers on a database invalidates the lock records of earlier ones.

The database may have been restored since. Then Redis has records of locks that the database does not know, and they would
extend these locks although other receivers have got the messages.
"""

import secrets

from app.store.shared.database import SqlSession

MAX_LOCK_VERSION = 1 << 30
"""Half of what the column holds, because each purge of locks adds one."""


async def start_lock_version(session: SqlSession) -> None:
    """See `QueueStore`. The version is random, because a counter in the database would have been restored too."""
    await session.change("start_lock_version", version=secrets.randbelow(MAX_LOCK_VERSION))


async def start_lock_version_unless_served(session: SqlSession) -> None:
    """Start a lock version, unless a process has registered on the database.

    A process calls this before it registers. So of several that register at once, none relies on a process that has not
    called it yet.
    """
    ((is_served,),) = await session.fetch("is_served")
    if not is_served:
        await start_lock_version(session)
