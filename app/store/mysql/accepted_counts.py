"""Counts of accepted messages on MariaDB and MySQL: changes are added up by their keys, past those that others hold."""

from app.store.mysql.session import MysqlSession
from app.store.mysql.templates import rows_json

MAX_FOLD_ROWS = 5_000
"""Changes added up in one transaction."""

KEY_COLUMNS = ("first_number", "queue_id", "day")


async def fold(session: MysqlSession) -> int:
    """Add changes of counts to the row of their queue and day; how many there were."""
    changes = await session.fetch("changed_counts", most=MAX_FOLD_ROWS)
    if changes:
        keys = rows_json(dict(zip(KEY_COLUMNS, change, strict=True)) for change in changes)
        await session.commit(session.render("fold_accepted", rows=keys), session.render("drop_folded", rows=keys))
    return len(changes)
