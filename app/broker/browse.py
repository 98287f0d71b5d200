"""Browse: look at messages without locking, counting or changing anything (S1.71)."""

from collections.abc import Sequence
from functools import partial

from app.broker.broker import Broker
from app.broker.filters import Everything, Filter
from app.broker.looks import look_through
from app.domain.message import Chosen, Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import MessageNotFound
from app.domain.weight import fitting

BATCH_SIZE = 200
"""Outlines read per statement while a filter looks for matches."""

MOST_BATCHES = 50
MOST_BYTES = 64 << 20
MOST_SECONDS = 2.0
"""Statements, bytes without bodies and time spent on one page, so that a filter that matches next to nothing still
answers in time."""


async def browse(
    broker: Broker, queue: Queue, states: Sequence[MessageState], matching: Filter, after: int, most: int
) -> tuple[list[Message], int | None]:
    """Matching messages above sequence number `after`, ascending, and where the next page begins (None: nowhere).

    A page may be short, or empty, before the end. It weighs no more than an answer may, unless it is one message.
    """
    chosen, following = await _choose(broker, queue, states, matching, after, most)
    count = fitting((one.weight for one in chosen), broker.largest_answer)
    if count < len(chosen):
        chosen, following = chosen[:count], chosen[count - 1].sequence_number
    async with broker.answers.room(sum(one.weight for one in chosen)):
        found = await broker.store.read_these(queue.id, [one.sequence_number for one in chosen])
    # Whoever has taken one meanwhile may have moved it to where it was not looked for.
    return [message for message in found if message.state in states], following


async def _choose(
    broker: Broker, queue: Queue, states: Sequence[MessageState], matching: Filter, after: int, most: int
) -> tuple[list[Chosen], int | None]:
    """The page, before any body of it is read."""
    chosen: list[Chosen] = []
    deadline = broker.clock.monotonic() + MOST_SECONDS
    left = MOST_BYTES
    for _ in range(MOST_BATCHES):
        # One more than the page holds tells whether there is another.
        size = min(most + 1, BATCH_SIZE) if isinstance(matching, Everything) else BATCH_SIZE
        look = await look_through(broker, matching, partial(broker.store.outlines, queue.id, states, after, size))
        chosen += look.matches
        left -= look.weight
        if len(chosen) > most:
            return chosen[:most], chosen[most - 1].sequence_number
        if look.last is None or look.count < size:
            return chosen, None
        after = look.last.sequence_number
        if left <= 0 or broker.clock.monotonic() >= deadline:
            break
    return chosen, after


async def look(broker: Broker, queue: Queue, sequence_number: int) -> Message:
    """One message in whatever state. Refuses with `MessageNotFound`."""
    async with broker.answers.room(queue.settings.max_message_bytes):
        message = await broker.store.read(queue.id, sequence_number)
    if message is None:
        raise MessageNotFound(f"Queue {queue.name} holds no message {sequence_number}.")
    return message
