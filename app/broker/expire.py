"""Expire: end locks and messages whose time has passed.

The sweeper of every process and the settlement of a late holder both use this code. Doubled work is a no-op: a row is
freed only while it still carries the token, and only if its time has passed or its generation is the one that expired
in the lock store.
"""

from collections.abc import Sequence
from itertools import compress

from msgspec.structs import replace

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
    """Free rows whose lock has ended, each with its expired generation; return whether each was freed.

    A message returns to its position, waits for the retry delay of its queue, or is dead-lettered at the limit. Rows of
    a deleted queue are freed too, until a background loop removes them: otherwise every sweep would find them first.
    """
    moves: list[Move] = []
    for locked, expired_generation in ended:
        queue = await broker.queue_cache.by_id(locked.queue_id)
        settings = QueueSettings() if queue is None else queue.settings
        failure = Failure(Outcome.LOCK_EXPIRED, LOCK_EXPIRED_REASON)
        move = release(locked, settings, failure, broker.random_fraction())
        moves.append(replace(move, fence=fence_above(expired_generation)))
    freed = await broker.store.release(moves) if moves else []
    notify_moved(broker, moves, freed)
    broker.counters.count("locks_expired", sum(freed))
    return freed


async def expire_messages(broker: Broker, expired: Sequence[UnlockedRow]) -> int:
    """Dead-letter or archive messages that are still past their time to live, as their queue is set; return how many.

    Messages of a deleted queue are purged, like everything else it held.
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
    count = await _dead_letter(broker, dead_lettered) if dead_lettered else 0
    count += sum(await broker.store.expire(withdrawn)) if withdrawn else 0
    broker.counters.count("messages_expired", count)
    return count


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
    deleted = await broker.store.queues.find_deleted(row.queue_id)
    return Withdrawal(row, deleted.name, Outcome.PURGED, deleted.archive_retention)


def _withdrawal(row: UnlockedRow, queue: Queue) -> Withdrawal:
    return Withdrawal(row, queue.name, Outcome.EXPIRED, queue.settings.archive_retention)
