"""Waiting: until something may have come, the time is over, or the queue was deleted."""

from app.broker.broker import Broker
from app.domain.queue import Queue, is_open_to_receivers
from app.runtime.bell import Waiter


async def woken(broker: Broker, queue: Queue, waiter: Waiter[int], deadline: float) -> bool:
    """Wait for a wake-up while the queue is open to receivers; false at the deadline.

    Refuses with `QueueNotFound` where the queue was deleted meanwhile.
    """
    while await waiter.rung(deadline - broker.clock.monotonic()):
        now = await broker.catalogue.numbered(queue.id)
        if now is None:
            raise broker.catalogue.missing(queue.name)
        if is_open_to_receivers(now.settings):
            return True
        waiter.hand_on()
    return False
