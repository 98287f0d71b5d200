"""Retry an operation when its queue was deleted after its name was looked up.

A process caches which queue has a name. Another process may have deleted that queue and created a new one with the same
name. The statement that stores a message refuses a deleted queue with `QueueGone`.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.broker.ports import QueueGone
from app.broker.queue_cache import QueueCache
from app.domain.queue import Queue

Result = TypeVar("Result")


async def with_current_queue(
    queue_cache: QueueCache,
    queue: Queue,
    operation: Callable[[Queue], Awaitable[Result]],
    look_up: Callable[[str], Awaitable[Queue]],
) -> Result:
    """Run the operation on the queue; if it is gone, run it on the queue that has its name now.

    Refuses with `QueueNotFound`.
    """
    try:
        return await operation(queue)
    except QueueGone:
        queue_cache.forget_chain(queue)
    try:
        return await operation(await look_up(queue.name))
    except QueueGone:
        raise queue_cache.not_found(queue.name) from None
