"""Browse: look at messages without locking, counting or changing anything (S1.71)."""

from collections.abc import Sequence

from app.broker.broker import Broker
from app.broker.filters import Filter
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import MessageNotFound

BITE = 500
"""Messages read per statement."""


async def browse(
    broker: Broker, queue: Queue, states: Sequence[MessageState], matching: Filter, after: int, most: int
) -> tuple[list[Message], int | None]:
    """Matching messages above sequence number `after`, ascending, and where the next page begins."""
    found: list[Message] = []
    while len(found) < most:
        seen = await broker.store.browse(queue.id, states, after, BITE)
        found += await matching.select(seen)
        if len(seen) < BITE:
            break
        after = seen[-1].sequence_number
    else:
        return found[:most], found[most - 1].sequence_number
    return (found, None) if len(found) <= most else (found[:most], found[most - 1].sequence_number)


async def look(broker: Broker, queue: Queue, sequence_number: int) -> Message:
    """One message in whatever state. Refuses with `MessageNotFound`."""
    message = await broker.store.read(queue.id, sequence_number)
    if message is None:
        raise MessageNotFound(f"Queue {queue.name} holds no message {sequence_number}.")
    return message
