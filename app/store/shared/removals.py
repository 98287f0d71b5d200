"""The removal of messages that a transaction has locked, with or without a row in the archive."""

from collections.abc import Sequence

from app.domain.instant import Duration
from app.domain.settlement import RESTORABLE_OUTCOMES, Outcome
from app.store.shared.database import SqlSession


async def archive_and_delete(
    session: SqlSession, numbers: Sequence[int], queue: str, outcome: Outcome, retention: Duration
) -> None:
    """Archive rows that this transaction has locked, or count them if the queue keeps no archive. Then delete them."""
    if retention:
        await session.change(
            "archive_messages", numbers=numbers, queue=queue, outcome=outcome.value, retention=retention
        )
        await session.change("add_unsealed", numbers=numbers)
        if outcome in RESTORABLE_OUTCOMES:
            await session.change("add_restorable", numbers=numbers)
    else:
        await session.change("count_unarchived", numbers=numbers, queue=queue)
    await session.change("delete_messages", numbers=numbers)
