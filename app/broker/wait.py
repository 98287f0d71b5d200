"""Wait until a message may have arrived, the time is over, or the queue is deleted."""

from app.broker.broker import Broker
from app.domain.queue import Queue, is_receive_enabled
from app.runtime.wait_queue import Waiter


async def wait_for_wake_up(broker: Broker, queue: Queue, waiter: Waiter[int], deadline: float) -> bool:
    """Wait for a wake-up while the queue allows receives; return False at the deadline.

    Refuses with `QueueNotFound` if the queue was deleted meanwhile.
    """
    while await waiter.woken(deadline - broker.clock.monotonic()):
        current_queue = await broker.queue_cache.by_id(queue.id)
        if current_queue is None:
            raise broker.queue_cache.not_found(queue.name)
        if is_receive_enabled(current_queue.settings):
            return True
        waiter.pass_on()
    return False
