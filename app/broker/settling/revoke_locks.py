"""Revoke: take back the locks of queues whose settings changed.

The queue records the revocation until no lock from before the change can appear any more, because the process may die
after the change, and because a receive that was under way may commit after it. The sweeper of any process revokes the
rest.
"""

from collections.abc import Sequence

from app.broker.settling.end_synchronous_send import end_synchronous_sends
from app.broker.settling.ports import SettlingPorts
from app.domain.settlement import ANY_LOCK, MAX_GENERATION, LockedMessage, Move, Outcome

_BATCH_SIZE = 500
"""Locks revoked per statement when settings change."""

_MAX_REVOCATIONS = 100
"""Queues whose locks are revoked in one pass; the others follow once these are done."""


async def revoke_locks(ports: SettlingPorts) -> int:
    """Revoke up to _BATCH_SIZE locks of each queue whose settings changed; return how many.

    Locks given after the change remain. A row that another transaction holds is left for the next pass.
    """
    revoked = 0
    for revocation in await ports.queues.revocations(_MAX_REVOCATIONS):
        rows = await ports.store.locks_of_queue(revocation.queue_id, revocation.granted_until, _BATCH_SIZE)
        if rows:
            revoked += await _revoke_batch(ports, rows)
        elif revocation.is_over:
            await ports.queues.end_revocation(revocation)
    return revoked


async def _revoke_batch(ports: SettlingPorts, rows: Sequence[LockedMessage]) -> int:
    """Revoke these locks; return how many were still held."""
    moves = [_revocation(row) for row in rows if not row.is_offered]
    moved = await ports.store.move(moves) if moves else []
    ended = await end_synchronous_sends(ports, [_revocation(row) for row in rows if row.is_offered])
    # A record left behind would let its holder renew a lock that is gone.
    await ports.lock_store.delete_records([(row.token, MAX_GENERATION) for row in rows])
    ports.counters.count("locks_taken", sum(moved) + sum(ended))
    ports.receivers.notify_moved(moves, moved)
    return sum(moved) + sum(ended)


def _revocation(row: LockedMessage) -> Move:
    # The store knows whether the queue keeps a history.
    return Move(
        row.token,
        row.queue_id,
        Outcome.ENTITY_CHANGED,
        row.home_state,
        fence=ANY_LOCK,
        keeps_history=True,
        is_offered=row.is_offered,
    )
