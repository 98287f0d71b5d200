"""Release: free messages whose lock has ended.

The sweeper of every process and the settlement of a late holder both use this code. Doubled work is a no-op: a row is
freed only while it still carries the token, and only if its time has passed or its generation is the one that expired
in the lock store.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from app.broker.ports.settling import SynchronousSendEnd
from app.broker.settling.end_synchronous_send import end_synchronous_sends
from app.broker.settling.ports import SettlingPorts
from app.domain.queue import QueueSettings, Redelivery
from app.domain.refusals import NewerQueue
from app.domain.settlement import LOCK_EXPIRED_REASON, Failure, LockedMessage, Move, Outcome, fence_above, release


async def release_expired(ports: SettlingPorts, ended: Sequence[tuple[LockedMessage, int]]) -> list[bool]:
    """Free rows whose lock has ended, each with its expired generation; return whether each was freed.

    A message returns to its position, waits for the retry delay of its queue, or is dead-lettered at the limit. Rows of
    a deleted queue are freed too, until a background loop removes them: otherwise every sweep would find them first.
    Rows of a queue that needs a newer server stay. A message whose sender waits leaves its queue.
    """
    moves = [await _release_move(ports, locked, generation) for locked, generation in ended]
    served = [move for move in moves if move is not None and not move.is_offered]
    offered = [move for move in moves if move is not None and move.is_offered]
    freed = await ports.store.release(served) if served else []
    ports.receivers.notify_moved(served, freed)
    ended_offers = await end_synchronous_sends(ports, offered, SynchronousSendEnd.LOCK_ENDED)
    ports.counters.count("locks_expired", sum(freed) + sum(ended_offers))
    in_order, offers_in_order = iter(freed), iter(ended_offers)
    return [move is not None and next(offers_in_order if move.is_offered else in_order) for move in moves]


async def _release_move(ports: SettlingPorts, locked: LockedMessage, expired_generation: int) -> Move | None:
    """Return the move that frees this row, or None if its queue needs a newer server."""
    try:
        queue = await ports.queue_cache.by_id(locked.queue_id)
    except NewerQueue:
        return None
    settings = QueueSettings() if queue is None else queue.settings
    # On request, a lock ends only because its message has expired: the message ends next, and nothing has failed.
    is_failure = settings.redelivery is Redelivery.AUTOMATIC
    failure = Failure(Outcome.LOCK_EXPIRED, LOCK_EXPIRED_REASON if is_failure else None, is_failure)
    move = release(locked, settings, failure, ports.random_fraction())
    return replace(move, fence=fence_above(expired_generation), keeps_history=settings.history)
