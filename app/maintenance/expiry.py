"""The sweeper: frees messages whose lock has ended, in every replica at once and without a leader."""

import asyncio

from app.broker.broker import Broker
from app.broker.expire import release_expired
from app.broker.queues import revoke_locks
from app.domain.settlement import NO_EXPIRED_GENERATION

BATCH_SIZE = 500
"""Locks freed per pass: one statement's worth, so that no pass holds rows for long."""


async def expire_locks(broker: Broker) -> float | None:
    """Free what SQL says has ended, what the lock store knows to have ended earlier, and what a change of a queue takes.

    Replicas that see the same locks do the same work twice; the second finds nothing left to free. A part that fails
    keeps no other part from its work: the first failure is raised when all of them are done.
    """
    parts = (_release_by_time(broker), _release_by_lock_store(broker), revoke_locks(broker))
    ended = await asyncio.gather(*parts, return_exceptions=True)
    swept = 0
    for part in ended:
        if isinstance(part, BaseException):
            raise part
        swept += part
    return 0.0 if swept >= BATCH_SIZE else None


async def _release_by_time(broker: Broker) -> int:
    ended = await broker.store.expired_locks(BATCH_SIZE)
    return sum(await release_expired(broker, [(row, NO_EXPIRED_GENERATION) for row in ended]))


async def _release_by_lock_store(broker: Broker) -> int:
    """An expired record counts only for the generation it was written for.

    It is dropped when it has served, or never will. A row that somebody changed at the same moment is not freed yet:
    without its record it would stay locked for the whole lead.
    """
    expired = await broker.lock_store.expired_records(BATCH_SIZE)
    if not expired:
        return 0
    rows = await broker.store.locked_messages([token for token, _ in expired])
    matching = [
        (row, generation)
        for row, (_, generation) in zip(rows, expired, strict=True)
        if row is not None and row.lock_generation == generation
    ]
    freed = await release_expired(broker, matching)
    waiting = {row.token for (row, _), is_freed in zip(matching, freed, strict=True) if not is_freed}
    await broker.lock_store.delete_records(
        [(token, generation) for token, generation in expired if token not in waiting]
    )
    return sum(freed)
