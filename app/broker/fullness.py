"""Whether a queue with a limit has room for more messages."""

from app.broker.broker import Broker
from app.domain.queue import Queue
from app.domain.refusals import QueueFull


async def allow_more(broker: Broker, queue: Queue, how_many: int) -> None:
    """Refuse with `QueueFull` where the messages would pass the queue's `max_messages`.

    Everything the queue holds counts, in whatever state. Senders who ask at the same moment see the
    same count, so together they may pass the limit by what they send at once.
    """
    if await how_many_fit(broker, queue, how_many) < how_many:
        raise full(queue)


async def how_many_fit(broker: Broker, queue: Queue, how_many: int) -> int:
    """As many of these messages as the queue has room for now."""
    limit = queue.settings.max_messages
    if limit is None:
        return how_many
    return max(0, min(how_many, limit - await broker.store.queues.total(queue.id)))


def full(queue: Queue) -> QueueFull:
    """The refusal of messages for which the queue has no room."""
    return QueueFull(f"Queue {queue.name} has no room for that: its max_messages is {queue.settings.max_messages}.")
