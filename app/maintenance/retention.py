"""Ends what has lived long enough: messages past their time to live, and what is remembered of others."""

from app.broker.broker import Broker
from app.broker.expire import retire

BATCH_SIZE = 500
"""Messages ended, or rows forgotten, per statement."""

FORGET_REST_SECONDS = 10.0
"""Nothing depends on how soon old rows go."""


async def retire_messages(broker: Broker) -> float | None:
    """Dead-letter or archive messages past their time to live, as their queue says."""
    overdue = await broker.store.overdue(BATCH_SIZE)
    retired = await retire(broker, overdue) if overdue else 0
    return 0.0 if retired >= BATCH_SIZE else None


async def forget_the_past(broker: Broker) -> float | None:
    """Remove tombstones, attempts, duplicate marks and sealed batches of the archive past their time."""
    forgotten = await broker.store.forget(BATCH_SIZE) + await broker.store.archive.forget(BATCH_SIZE)
    broker.tally.count("rows_forgotten", forgotten)
    return 0.0 if forgotten >= BATCH_SIZE else FORGET_REST_SECONDS
