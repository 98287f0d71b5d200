"""Expire: end messages that are past their time to live."""

from collections.abc import Sequence
from itertools import compress

from app.broker.administration.ports import AdministrationPorts
from app.broker.notify_receivers import StateChange
from app.broker.ports.maintaining import UnlockedRow, Withdrawal
from app.broker.ports.queues import QueueStore
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.refusals import NewerQueue
from app.domain.settlement import TTL_EXPIRED_REASON, Outcome


async def expire_messages(ports: AdministrationPorts, expired: Sequence[UnlockedRow]) -> int:
    """Dead-letter or archive messages that are still past their time to live, as their queue is set; return how many.

    Messages of a deleted queue are purged, like everything else it held. Those of a queue that needs a newer server stay.
    """
    dead_lettered: list[UnlockedRow] = []
    withdrawn: list[Withdrawal] = []
    for row in expired:
        try:
            queue = await ports.queue_cache.by_id(row.queue_id)
        except NewerQueue:
            continue
        if queue is None:
            withdrawn.append(await _orphan_withdrawal(ports.store.queues, row))
        elif queue.settings.dead_letter_on_expiry and not row.is_offered:
            dead_lettered.append(row)
        else:
            withdrawn.append(_withdrawal(row, queue))
    count = await _dead_letter(ports, dead_lettered) if dead_lettered else 0
    count += await _archive(ports, withdrawn) if withdrawn else 0
    ports.counters.count("messages_expired", count)
    return count


async def _dead_letter(ports: AdministrationPorts, expired: Sequence[UnlockedRow]) -> int:
    dead_lettered = await ports.store.dead_letter(expired, TTL_EXPIRED_REASON)
    ports.receivers.notify(
        StateChange(row.queue_id, row.sequence_number, MessageState.DEAD_LETTERED)
        for row in compress(expired, dead_lettered)
    )
    for row in compress(expired, dead_lettered):
        ports.counters.count_messages(row.queue_id, Outcome.EXPIRED)
        ports.counters.count_messages(row.queue_id, Outcome.DEAD_LETTERED)
    return sum(dead_lettered)


async def _archive(ports: AdministrationPorts, withdrawn: Sequence[Withdrawal]) -> int:
    archived = await ports.store.expire(withdrawn)
    for withdrawal in compress(withdrawn, archived):
        ports.counters.count_messages(withdrawal.row.queue_id, withdrawal.outcome)
    return sum(archived)


async def _orphan_withdrawal(queues: QueueStore, row: UnlockedRow) -> Withdrawal:
    deleted = await queues.find_deleted(row.queue_id)
    return Withdrawal(row, deleted.name, Outcome.PURGED, deleted.archive_retention)


def _withdrawal(row: UnlockedRow, queue: Queue) -> Withdrawal:
    return Withdrawal(row, queue.name, Outcome.EXPIRED, queue.settings.archive_retention)
