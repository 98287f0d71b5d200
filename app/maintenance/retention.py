"""Retention: expire messages past their time to live, and delete old records."""

from app.broker.broker import Broker
from app.broker.expire import expire_messages

BATCH_SIZE = 500
"""Messages expired, or rows deleted, per statement."""

DELETE_REST_SECONDS = 10.0
"""Nothing depends on how soon old rows are deleted."""


async def expire_overdue(broker: Broker) -> float | None:
    """Dead-letter or archive messages past their time to live, as their queue is set."""
    overdue = await broker.store.expired_messages(BATCH_SIZE)
    expired = await expire_messages(broker, overdue) if overdue else 0
    return 0.0 if expired >= BATCH_SIZE else None


async def delete_expired(broker: Broker) -> float | None:
    """Delete tombstones, attempts, duplicate records and sealed archive batches past their retention."""
    deleted = await broker.store.delete_expired(BATCH_SIZE) + await broker.store.archive.delete_expired(BATCH_SIZE)
    broker.counters.count("rows_forgotten", deleted)
    return 0.0 if deleted >= BATCH_SIZE else DELETE_REST_SECONDS
