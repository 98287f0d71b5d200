"""Whether a queue with a limit has room for more messages."""

from app.broker.broker import Broker
from app.domain.queue import Queue
from app.domain.refusals import QueueFull


async def allow_more(broker: Broker, queue: Queue, how_many: int) -> None:
    """Refuse with `QueueFull` where the messages would pass the queue's `max_messages`.

    Everything the queue holds counts, in whatever state. Senders who ask at the same moment see the
    same count, so together they may pass the limit by what they send at once.
    """
    limit = queue.settings.max_messages
    if limit is None:
        return
    counts = (await broker.store.queues.counts([queue.id]))[queue.id]
    if counts.total + how_many > limit:
        raise QueueFull(f"Queue {queue.name} holds {counts.total} messages; its limit is {limit}.")
