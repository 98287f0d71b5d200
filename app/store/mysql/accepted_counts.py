"""Counts of accepted messages on MariaDB and MySQL: folds changes by key, and skips changes that are locked."""

from app.store.mysql.session import MysqlSession

MAX_FOLD_ROWS = 5_000
"""Changes that one transaction folds."""


async def fold(session: MysqlSession) -> int:
    """Add changes of counts to the row of their queue and day. Return how many were folded.

    A message that leaves its queue may change the count that its send has made. So the locks are taken and released in
    one round trip: a process that stops holds none of them.
    """
    *_, deleted = await session.commit(
        session.render("lock_changes", limit=MAX_FOLD_ROWS),
        session.render("fold_accepted"),
        session.render("delete_folded"),
    )
    return deleted.changed
