"""Counts of accepted messages on MariaDB and MySQL: changes are added up by their keys, past those that others hold."""

from app.store.mysql_session import Session
from app.store.mysql_text import table

LARGEST_FOLD = 5_000
"""Changes added up in one transaction."""

KEY = ("first_number", "queue_id", "day")


async def fold(session: Session) -> int:
    """Add changes of counts to the row of their queue and day; how many there were."""
    changes = await session.fetch("changed_counts", most=LARGEST_FOLD)
    if changes:
        keys = table(dict(zip(KEY, change, strict=True)) for change in changes)
        await session.finish(session.text("fold_accepted", rows=keys), session.text("drop_folded", rows=keys))
    return len(changes)
