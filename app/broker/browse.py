"""Browse: look at messages without locking, counting or changing anything (S1.71)."""

from collections.abc import Sequence

from app.broker.broker import Broker
from app.broker.filters import Everything, Filter
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import MessageNotFound

BITE = 200
"""Messages read per statement while a filter looks for matches."""

MOST_BITES = 50
"""Statements spent on one page, so that a filter that matches next to nothing still answers in time."""


async def browse(
    broker: Broker, queue: Queue, states: Sequence[MessageState], matching: Filter, after: int, most: int
) -> tuple[list[Message], int | None]:
    """Matching messages above sequence number `after`, ascending, and where the next page begins (None: nowhere).

    A page may be short, or empty, before the end.
    """
    found: list[Message] = []
    for _ in range(MOST_BITES):
        # One more than the page holds tells whether there is another.
        bite = most + 1 - len(found) if isinstance(matching, Everything) else BITE
        seen = await broker.store.browse(queue.id, states, after, bite)
        found += await matching.select(seen)
        if len(found) > most:
            return found[:most], found[most - 1].sequence_number
        if len(seen) < bite:
            return found, None
        after = seen[-1].sequence_number
    return found, after


async def look(broker: Broker, queue: Queue, sequence_number: int) -> Message:
    """One message in whatever state. Refuses with `MessageNotFound`."""
    message = await broker.store.read(queue.id, sequence_number)
    if message is None:
        raise MessageNotFound(f"Queue {queue.name} holds no message {sequence_number}.")
    return message
