"""Wait until a message may have arrived, the time is over, or the queue is deleted."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from app.broker.receiving.ports import ReceivingPorts
from app.domain.queue import Queue, is_receive_enabled
from app.runtime.wait_queue import Waiter

CheckAccess: TypeAlias = Callable[[], Awaitable[object]]
"""Refuses a receiver that may no longer receive. It runs after a wait, before a message is locked."""


async def always_allowed() -> None:
    """Refuse no receiver."""


async def wait_for_wake_up(
    ports: ReceivingPorts, queue: Queue, waiter: Waiter[int], deadline: float, check_access: CheckAccess
) -> bool:
    """Wait for a wake-up while the queue allows receives; return False at the deadline.

    Refuses with `QueueNotFound` if the queue was deleted meanwhile, and as `check_access` does. The wake-up of a refused
    receiver passes to the next one.
    """
    while await waiter.woken(deadline - ports.clock.monotonic()):
        await check_access()
        current_queue = await ports.queue_cache.by_id(queue.id)
        if current_queue is None:
            raise ports.queue_cache.not_found(queue.name)
        if is_receive_enabled(current_queue.settings):
            return True
        waiter.pass_on()
    return False
