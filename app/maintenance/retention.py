"""Ends what has lived long enough: messages past their time to live, and what is remembered of others."""

from app.broker.broker import Broker
from app.broker.expire import retire

BITE = 500
"""Messages ended, or rows forgotten, per statement."""

FORGET_REST_SECONDS = 10.0
"""Nothing depends on how soon old rows go."""


async def retire_messages(broker: Broker) -> float | None:
    """Dead-letter or archive messages past their time to live, as their queue says."""
    overdue = await broker.store.overdue(BITE)
    retired = await retire(broker, overdue) if overdue else 0
    return 0.0 if retired >= BITE else None


async def forget_the_past(broker: Broker) -> float | None:
    """Remove tombstones, attempts, duplicate marks and sealed batches of the archive past their time."""
    forgotten = await broker.store.forget(BITE) + await broker.store.archive.forget(BITE)
    broker.tally.count("rows_forgotten", forgotten)
    return 0.0 if forgotten >= BITE else FORGET_REST_SECONDS
