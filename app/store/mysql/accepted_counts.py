"""Counts of accepted messages on MariaDB and MySQL: folds changes by key, and skips changes that are locked."""

from app.store.mysql.session import MysqlSession
from app.store.mysql.templates import rows_json

MAX_FOLD_ROWS = 5_000
"""Changes that one transaction folds."""

KEY_COLUMNS = ("first_number", "queue_id", "day")


async def fold(session: MysqlSession) -> int:
    """Add changes of counts to the row of their queue and day. Return how many were folded."""
    changes = await session.fetch("changed_counts", limit=MAX_FOLD_ROWS)
    if changes:
        keys = rows_json(dict(zip(KEY_COLUMNS, change, strict=True)) for change in changes)
        await session.commit(session.render("fold_accepted", rows=keys), session.render("delete_folded", rows=keys))
    return len(changes)
