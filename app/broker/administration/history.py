"""History: the recorded events of a message. Nothing is locked, counted or changed."""

from app.broker.administration.ports import AdministrationPorts
from app.domain.history import EventCount, MessageEvent
from app.domain.queue import Queue
from app.domain.refusals import MessageNotFound

_MAX_COUNTED_EVENTS = 20_000
"""The newest events of all queues that one count reads, by their primary key."""


async def read_history(
    ports: AdministrationPorts, queue: Queue, sequence_number: int, after: int, limit: int
) -> tuple[list[MessageEvent], int | None]:
    """Return at most `limit` events with numbers above `after`, and the `after` of the next page, None on the last one.

    A message without recorded events has none. Refuses with `MessageNotFound` if no record of the message is left.
    """
    events = await ports.store.history(queue.id, sequence_number, after, limit + 1)
    if not events and not await _has_record(ports, queue, sequence_number):
        raise MessageNotFound(f"Queue {queue.name} holds no message {sequence_number}, and has no record of its end.")
    page = events[:limit]
    return page, page[-1].number if len(events) > limit else None


async def count_by_minute(ports: AdministrationPorts, queue: Queue) -> list[EventCount]:
    """Return the counts of the queue's events among the newest events of all queues, by minute, ascending."""
    return await ports.store.history_by_minute(queue.id, _MAX_COUNTED_EVENTS)


async def _has_record(ports: AdministrationPorts, queue: Queue, sequence_number: int) -> bool:
    """Return whether the queue holds the message, or has a record of its end."""
    # In this order, because the second read finds a message that ends between the two.
    facts = await ports.store.read_facts(queue.id, sequence_number)
    return facts is not None or await ports.store.read_end(queue.id, sequence_number) is not None
