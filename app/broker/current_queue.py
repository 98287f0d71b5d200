"""Storing where a queue is: a queue that was deleted since its name was looked up is looked up once more.

A process remembers which queue a name stands for, and another process may have deleted that queue and made a new one of
the name. The store refuses what would go into a queue that is gone (`QueueGone`), in the statement that stores.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.broker.broker import Broker
from app.broker.ports import QueueGone
from app.domain.queue import Queue

Result = TypeVar("Result")


async def with_current_queue(
    broker: Broker,
    queue: Queue,
    operation: Callable[[Queue], Awaitable[Result]],
    look_up: Callable[[str], Awaitable[Queue]],
) -> Result:
    """Act on the queue, or once more on the one that has its name now. Refuses with `QueueNotFound`."""
    try:
        return await operation(queue)
    except QueueGone:
        broker.queue_cache.forget(queue)
    try:
        return await operation(await look_up(queue.name))
    except QueueGone:
        raise broker.queue_cache.not_found(queue.name) from None
