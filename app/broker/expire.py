"""Expire: what happens by itself when a lock or a message has reached its end.

The sweeper of every process and a late holder walk the same road. Doubled work is a no-op, because
the row is freed only while it still carries the token, and only when its time has passed or its
generation is the one that the lock store saw expire.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from app.broker.broker import Broker
from app.broker.notify_receivers import StateChange, notify_moved, notify_receivers
from app.broker.ports import UnlockedRow, Withdrawal
from app.domain.message import MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import (
    LOCK_EXPIRED_REASON,
    TTL_EXPIRED_REASON,
    Failure,
    LockedMessage,
    Move,
    Outcome,
    fence_above,
    release,
)


async def release_expired(broker: Broker, ended: Sequence[tuple[LockedMessage, int]]) -> list[bool]:
    """Free rows whose lock has ended, each with the evidence for it; whether each was freed.

    They return to their place in the order, wait for their queue's retry delay, or are dead-lettered
    at its limit. Those of a queue that is gone are freed too, until a pass removes them: left as they
    are, they would be what is seen first for ever.
    """
    moves: list[Move] = []
    for held, evidence in ended:
        queue = await broker.queue_cache.by_id(held.queue_id)
        settings = QueueSettings() if queue is None else queue.settings
        failure = Failure(Outcome.LOCK_EXPIRED, LOCK_EXPIRED_REASON)
        moves.append(replace(release(held, settings, failure, broker.random_fraction()), fence=fence_above(evidence)))
    freed = await broker.store.release(moves) if moves else []
    notify_moved(broker, moves, freed)
    broker.counters.count("locks_expired", sum(freed))
    return freed


async def expire_messages(broker: Broker, expired: Sequence[UnlockedRow]) -> int:
    """End messages that were seen past their time to live and still are: dead-lettered or archived, as their queue says.

    Where the queue is gone, they are purged as all that it held.
    """
    dead_lettered: list[UnlockedRow] = []
    withdrawn: list[Withdrawal] = []
    for row in expired:
        queue = await broker.queue_cache.by_id(row.queue_id)
        if queue is None:
            withdrawn.append(await _orphan_withdrawal(broker, row))
        elif queue.settings.dead_letter_on_expiry:
            dead_lettered.append(row)
        else:
            withdrawn.append(_withdrawal(row, queue))
    gone = await _dead_letter(broker, dead_lettered) if dead_lettered else 0
    gone += sum(await broker.store.expire(withdrawn)) if withdrawn else 0
    broker.counters.count("messages_expired", gone)
    return gone


async def _dead_letter(broker: Broker, expired: Sequence[UnlockedRow]) -> int:
    dead_lettered = await broker.store.dead_letter(expired, TTL_EXPIRED_REASON)
    notify_receivers(
        broker,
        (
            StateChange(row.queue_id, row.sequence_number, MessageState.DEAD_LETTERED)
            for row in compress(expired, dead_lettered)
        ),
    )
    return sum(dead_lettered)


async def _orphan_withdrawal(broker: Broker, row: UnlockedRow) -> Withdrawal:
    left = await broker.store.queues.find_deleted(row.queue_id)
    return Withdrawal(row, left.name, Outcome.PURGED, left.archive_retention)


def _withdrawal(row: UnlockedRow, queue: Queue) -> Withdrawal:
    return Withdrawal(row, queue.name, Outcome.EXPIRED, queue.settings.archive_retention)
