"""The limit of messages in a queue."""

from app.broker.ports import QueueTotals
from app.domain.queue import Queue
from app.domain.refusals import QueueFull


async def check_capacity(queues: QueueTotals, queue: Queue, count: int) -> None:
    """Refuse with `QueueFull` if these messages would exceed the queue's `max_messages`.

    Messages in every state count. Concurrent senders see the same count, so together they may exceed the limit by the
    messages that they send at the same time.
    """
    if await free_capacity(queues, queue, count) < count:
        raise queue_full(queue)


async def free_capacity(queues: QueueTotals, queue: Queue, count: int) -> int:
    """Return how many of `count` messages the queue has room for now."""
    limit = queue.settings.max_messages
    if limit is None:
        return count
    return max(0, min(count, limit - await queues.total(queue.id)))


def queue_full(queue: Queue) -> QueueFull:
    """Build the refusal of messages for which the queue has no room."""
    return QueueFull(f"Queue {queue.name} has no room for that: its max_messages is {queue.settings.max_messages}.")
