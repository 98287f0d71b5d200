"""Wait until a message may have arrived, the time is over, or the queue is deleted."""

from dataclasses import dataclass

from app.broker.queue_cache import QueueCache
from app.domain.queue import Queue, is_receive_enabled
from app.runtime.clock import Clock
from app.runtime.wait_queue import Waiter, WaitQueue


@dataclass(frozen=True, slots=True)
class WaitPorts:
    """What a waiting receive uses."""

    wait_queue: WaitQueue[int]
    queue_cache: QueueCache
    clock: Clock


async def wait_for_wake_up(ports: WaitPorts, queue: Queue, waiter: Waiter[int], deadline: float) -> bool:
    """Wait for a wake-up while the queue allows receives; return False at the deadline.

    Refuses with `QueueNotFound` if the queue was deleted meanwhile.
    """
    while await waiter.woken(deadline - ports.clock.monotonic()):
        current_queue = await ports.queue_cache.by_id(queue.id)
        if current_queue is None:
            raise ports.queue_cache.not_found(queue.name)
        if is_receive_enabled(current_queue.settings):
            return True
        waiter.pass_on()
    return False
