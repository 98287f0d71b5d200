"""Makes scheduled and delayed messages available when they are due, and lets waiting receivers look again."""

from app.broker.administration.ports import AdministrationPorts
from app.broker.notify_receivers import StateChange
from app.domain.instant import to_seconds
from app.domain.message import MessageState
from app.runtime.wait_queue import WaitQueue

BATCH_SIZE = 1000
"""Messages made available per statement."""

GROUPS_PER_PASS = 100
"""Groups of a queue that one transaction locks after a change of the queue's settings."""

MAX_DELAY_SECONDS = 1.0
"""Another replica may have scheduled a message whose notification was lost."""

MIN_DELAY_SECONDS = 0.005
"""Messages that become due shortly after each other are promoted together. Jitter does not split the last delay."""


async def promote_scheduled(ports: AdministrationPorts) -> float | None:
    """Make due messages available and wake their receivers; return the seconds until the next one is due.

    Also admit messages that a change of `group_in_flight` has left blocked.
    """
    is_admitted = await ports.store.admit_after_changes(GROUPS_PER_PASS)
    promoted = await ports.store.promote(BATCH_SIZE)
    ports.receivers.notify(
        StateChange(queue_id, number, MessageState.AVAILABLE)
        for queue_id, numbers in promoted.by_queue.items()
        for number in numbers
    )
    total = sum(map(len, promoted.by_queue.values()))
    ports.counters.count("messages_awoken", total)
    if total >= BATCH_SIZE or not is_admitted:
        return 0.0
    if promoted.next_due_in is None:
        return MAX_DELAY_SECONDS
    return min(max(to_seconds(promoted.next_due_in), MIN_DELAY_SECONDS), MAX_DELAY_SECONDS)


async def wake_receivers(wait_queue: WaitQueue[int]) -> float | None:
    """Wake the longest-waiting receiver of each queue, because a notification of another process may be lost.

    If it leaves messages, it wakes the next one. So a thousand receivers on an empty queue cost one poll per second, not a thousand. Receivers with filters poll only
    for themselves, so they all poll, one after the other.
    """
    for queue_id in wait_queue.wait_keys():
        wait_queue.wake(queue_id)
    return None
