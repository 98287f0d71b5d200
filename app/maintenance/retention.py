"""Retention: expire messages past their time to live, and delete old records and versions of states."""

from app.broker.administration.expire import expire_messages
from app.broker.administration.ports import AdministrationPorts
from app.domain.instant import Duration

BATCH_SIZE = 500
"""Messages expired, or rows deleted, per statement."""

DELETE_DELAY_SECONDS = 10.0
"""Nothing depends on how soon old rows are deleted."""

VERSIONS_DELAY_SECONDS = 1.0
"""Versions may be large, so a pass removes few of them."""


async def expire_overdue(ports: AdministrationPorts) -> float | None:
    """Dead-letter or archive messages past their time to live, as their queue is set."""
    overdue = await ports.store.expired_messages(BATCH_SIZE)
    expired = await expire_messages(ports, overdue) if overdue else 0
    return 0.0 if expired >= BATCH_SIZE else None


async def delete_expired(ports: AdministrationPorts) -> float | None:
    """Delete tombstones, attempts, duplicate records and sealed archive batches past their retention."""
    deleted = await ports.store.delete_expired(BATCH_SIZE) + await ports.store.archive.delete_expired(BATCH_SIZE)
    ports.counters.count("rows_forgotten", deleted)
    return 0.0 if deleted >= BATCH_SIZE else DELETE_DELAY_SECONDS


async def delete_old_versions(ports: AdministrationPorts, retention: Duration) -> float | None:
    """Remove versions of states that were replaced long ago, and those of deleted states (S4.17)."""
    removed = await ports.store.states.delete_old_versions(retention, BATCH_SIZE)
    ports.counters.count("versions_removed", removed)
    return 0.0 if removed >= BATCH_SIZE else VERSIONS_DELAY_SECONDS
