"""Whether a queue with a limit has room for more messages."""

from app.broker.broker import Broker
from app.domain.queue import Queue
from app.domain.refusals import QueueFull


async def check_capacity(broker: Broker, queue: Queue, count: int) -> None:
    """Refuse with `QueueFull` where the messages would pass the queue's `max_messages`.

    Everything the queue holds counts, in whatever state. Senders who ask at the same moment see the
    same count, so together they may pass the limit by what they send at once.
    """
    if await free_capacity(broker, queue, count) < count:
        raise queue_full(queue)


async def free_capacity(broker: Broker, queue: Queue, count: int) -> int:
    """As many of these messages as the queue has room for now."""
    limit = queue.settings.max_messages
    if limit is None:
        return count
    return max(0, min(count, limit - await broker.store.queues.total(queue.id)))


def queue_full(queue: Queue) -> QueueFull:
    """The refusal of messages for which the queue has no room."""
    return QueueFull(f"Queue {queue.name} has no room for that: its max_messages is {queue.settings.max_messages}.")
