"""Forwarding: a message that is sent to a queue is stored in the last queue of a chain."""

from app.broker.queue_cache import QueueCache
from app.domain.queue import MAX_FORWARDING_HOPS, Queue, check_send_enabled
from app.domain.refusals import ForwardingTooLong, QueueNotFound


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
