"""Expire: what happens by itself when a lock or a message has reached its end.

The sweeper of every process and a late holder walk the same road. Doubled work is a no-op, because
the row is freed only while it still carries the token, and only when its time has passed or its
generation is the one that the lock store saw expire.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from app.broker.announce import Arrival, announce, announce_moved
from app.broker.broker import Broker
from app.broker.ports import Unlocked, Withdrawal
from app.domain.message import MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import (
    LOCK_EXPIRED,
    TTL_PASSED,
    Failure,
    Held,
    Move,
    Outcome,
    cleared,
    release,
)


async def free(broker: Broker, ended: Sequence[tuple[Held, int]]) -> list[bool]:
    """Free rows whose lock has ended, each with the evidence for it; whether each was freed.

    They return to their place in the order, wait for their queue's retry delay, or are dead-lettered
    at its limit. Those of a queue that is gone are freed too, until a pass removes them: left as they
    are, they would be what is seen first for ever.
    """
    moves: list[Move] = []
    for held, evidence in ended:
        queue = await broker.catalogue.numbered(held.queue_id)
        settings = QueueSettings() if queue is None else queue.settings
        failure = Failure(Outcome.LOCK_EXPIRED, LOCK_EXPIRED)
        moves.append(replace(release(held, settings, failure, broker.chance()), fence=cleared(evidence)))
    freed = await broker.store.release(moves) if moves else []
    announce_moved(broker, moves, freed)
    broker.tally.count("locks_expired", sum(freed))
    return freed


async def retire(broker: Broker, overdue: Sequence[Unlocked]) -> int:
    """End messages that were seen past their time to live and still are: dead-lettered or archived, as their queue says.

    Where the queue is gone, they are purged as all that it held.
    """
    buried: list[Unlocked] = []
    withdrawn: list[Withdrawal] = []
    for row in overdue:
        queue = await broker.catalogue.numbered(row.queue_id)
        if queue is None:
            withdrawn.append(await _orphan(broker, row))
        elif queue.settings.dead_letter_on_expiry:
            buried.append(row)
        else:
            withdrawn.append(_withdrawal(row, queue))
    gone = await _bury(broker, buried) if buried else 0
    gone += sum(await broker.store.expire(withdrawn)) if withdrawn else 0
    broker.tally.count("messages_expired", gone)
    return gone


async def _bury(broker: Broker, overdue: Sequence[Unlocked]) -> int:
    buried = await broker.store.bury(overdue, TTL_PASSED)
    announce(
        broker,
        (Arrival(row.queue_id, row.sequence_number, MessageState.DEAD_LETTERED) for row in compress(overdue, buried)),
    )
    return sum(buried)


async def _orphan(broker: Broker, row: Unlocked) -> Withdrawal:
    left = await broker.store.queues.last_known(row.queue_id)
    return Withdrawal(row, left.name, Outcome.PURGED, left.archive_retention)


def _withdrawal(row: Unlocked, queue: Queue) -> Withdrawal:
    return Withdrawal(row, queue.name, Outcome.EXPIRED, queue.settings.archive_retention)
