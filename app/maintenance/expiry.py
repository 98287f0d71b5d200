"""The sweeper: frees messages whose lock has ended, and rolls back transactions whose time is over.

It runs in every replica, without a leader.
"""

import asyncio
from collections.abc import Sequence

from app.broker.settling.ports import SettlingPorts
from app.broker.settling.release_expired import release_expired
from app.broker.settling.revoke_locks import revoke_locks
from app.broker.transactions.ports import TransactionPorts
from app.domain.settlement import NO_EXPIRED_GENERATION, LockToken

BATCH_SIZE = 500
"""Locks freed per pass: one statement's worth, so that no pass holds rows for long."""

MAX_ROLLBACKS = 100
"""Transactions of one pass, each rolled back in an SQL transaction of its own: it may have thousands of members."""


async def expire_locks(ports: SettlingPorts) -> float | None:
    """Free locks that have ended by SQL, locks that ended earlier by the lock store, and locks that a change revokes.

    Replicas that read the same locks do the same work twice; the second finds nothing left to free. A failing part does
    not stop the others: the first failure is raised when all are done.
    """
    parts = (_release_by_time(ports), _release_by_lock_store(ports), revoke_locks(ports))
    results = await asyncio.gather(*parts, return_exceptions=True)
    swept = 0
    for result in results:
        if isinstance(result, BaseException):
            raise result
        swept += result
    return 0.0 if swept >= BATCH_SIZE else None


async def roll_back_overdue(ports: TransactionPorts) -> float | None:
    """Roll back transactions whose time is over."""
    for count in range(MAX_ROLLBACKS):
        if not await ports.store.roll_back_overdue():
            ports.settling.counters.count("transactions_timed_out", count)
            return None
    ports.settling.counters.count("transactions_timed_out", MAX_ROLLBACKS)
    return 0.0


async def _release_by_time(ports: SettlingPorts) -> int:
    ended = await ports.store.expired_locks(BATCH_SIZE)
    return sum(await release_expired(ports, [(row, NO_EXPIRED_GENERATION) for row in ended]))


async def _release_by_lock_store(ports: SettlingPorts) -> int:
    """Free the rows of expired records, about a batch. Records that must remain take no place in it."""
    freed = remaining = 0
    while freed < BATCH_SIZE and (expired := await ports.lock_store.expired_records(BATCH_SIZE, skip=remaining)):
        newly_freed, newly_remaining = await _release_by_records(ports, expired)
        freed += newly_freed
        remaining += newly_remaining
        if not newly_remaining:
            break
    return freed


async def _release_by_records(ports: SettlingPorts, expired: Sequence[tuple[LockToken, int]]) -> tuple[int, int]:
    """Free the rows of these records, each only in the generation of its record; return how many, and how many remain.

    A record is deleted once its row is freed, or if the row no longer matches. It remains if a concurrent change kept
    its row from being freed, or if only a newer server may free it: without the record the row would stay locked for
    the whole lead time, and its holder could still settle it.
    """
    rows = await ports.store.locked_messages([token for token, _ in expired])
    matching = [
        (row, generation)
        for row, (_, generation) in zip(rows, expired, strict=True)
        if row is not None and row.lock_generation == generation
    ]
    freed = await release_expired(ports, matching)
    waiting = {row.token for (row, _), is_freed in zip(matching, freed, strict=True) if not is_freed}
    await ports.lock_store.delete_records(
        [(token, generation) for token, generation in expired if token not in waiting]
    )
    return sum(freed), len(waiting)
