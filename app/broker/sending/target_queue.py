"""The queue that stores a message: the last queue of a chain, found again if it was deleted, and whether it has room.

A process caches which queue has a name. Another process may have deleted that queue and created a new one with the same
name. The statement that stores a message refuses a deleted queue with `QueueGone`.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.broker.ports.queues import QueueStore
from app.broker.ports.sending import QueueGone
from app.broker.queue_cache import QueueCache
from app.domain.queue import MAX_FORWARDING_HOPS, Queue, check_send_enabled
from app.domain.refusals import ForwardingTooLong, QueueFull, QueueNotFound

LOOKUPS = 2
"""How often the queue of a name is looked up: once more if the queue was deleted since it was cached."""

Result = TypeVar("Result")


async def last_queue(queue_cache: QueueCache, queue: Queue) -> Queue:
    """Return the queue that stores the messages that are sent to this one.

    Refuses with `SendDisabled` if a queue on the way accepts no sends, with `QueueNotFound` if the next one was deleted,
    and with `ForwardingTooLong` too many hops. A cycle cannot be configured, and would be refused like these.
    """
    current = queue
    for _ in range(MAX_FORWARDING_HOPS + 1):
        check_send_enabled(current)
        target = current.settings.forward_to
        if target is None:
            return current
        try:
            current = await queue_cache.by_name(target)
        except QueueNotFound:
            raise QueueNotFound(f"Queue {current.name} forwards to queue {target}, which does not exist.") from None
    raise ForwardingTooLong(f"Queue {queue.name} forwards messages more than {MAX_FORWARDING_HOPS} times.")


async def with_current_queue(
    queue_cache: QueueCache, queue: Queue, operation: Callable[[Queue], Awaitable[Result]]
) -> Result:
    """Run the operation on the queue; if it is gone, run it on the queue that has its name now.

    Refuses with `QueueNotFound`.
    """
    try:
        return await operation(queue)
    except QueueGone:
        queue_cache.forget_chain(queue)
    try:
        return await operation(await queue_cache.by_name(queue.name))
    except QueueGone:
        raise queue_cache.not_found(queue.name) from None


async def check_capacity(queues: QueueStore, queue: Queue, count: int) -> None:
    """Refuse with `QueueFull` if these messages would exceed the queue's `max_messages`.

    Messages in every state count. Concurrent senders see the same count, so together they may exceed the limit by the
    messages that they send at the same time.
    """
    if queue.settings.max_messages is not None and await free_capacity(queues, queue, count) < count:
        raise queue_full(queue)


async def free_capacity(queues: QueueStore, queue: Queue, count: int) -> int:
    """Return how many of `count` messages the queue has room for now."""
    limit = queue.settings.max_messages
    if limit is None:
        return count
    return max(0, min(count, limit - await queues.total(queue.id)))


def queue_full(queue: Queue) -> QueueFull:
    """Build the refusal of messages for which the queue has no room."""
    return QueueFull(f"Queue {queue.name} has no room for that: its max_messages is {queue.settings.max_messages}.")
