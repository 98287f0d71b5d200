"""Browse: look at messages without locking, counting or changing anything (S1.71)."""

from collections.abc import Sequence
from functools import partial

from app.broker.broker import Broker
from app.broker.filtered_read import read_filtered
from app.broker.filters import Filter, MatchAll
from app.domain.message import Message, MessageState, SelectedMessage
from app.domain.queue import Queue
from app.domain.refusals import MessageNotFound
from app.domain.weight import count_that_fit

BATCH_SIZE = 200
"""Outlines read per statement while a filter looks for matches."""

MAX_BATCHES = 50
MAX_BYTES = 64 << 20
MAX_SECONDS = 2.0
"""Statements, bytes without bodies and time spent on one page, so that a filter that matches next to nothing still
answers in time."""


async def browse(
    broker: Broker, queue: Queue, states: Sequence[MessageState], message_filter: Filter, after: int, limit: int
) -> tuple[list[Message], int | None]:
    """Matching messages above sequence number `after`, ascending, and where the next page begins (None: nowhere).

    A page may be short, or empty, before the end. It weighs no more than an answer may, unless it is one message.
    """
    chosen, next_after = await _select_page(broker, queue, states, message_filter, after, limit)
    count = count_that_fit((one.weight for one in chosen), broker.max_response_bytes)
    if count < len(chosen):
        chosen, next_after = chosen[:count], chosen[count - 1].sequence_number
    async with broker.response_budget.reserve(sum(one.weight for one in chosen)):
        found = await broker.store.read_many(queue.id, [one.sequence_number for one in chosen])
    # Whoever has taken one meanwhile may have moved it to where it was not looked for.
    return [message for message in found if message.state in states], next_after


async def _select_page(
    broker: Broker, queue: Queue, states: Sequence[MessageState], message_filter: Filter, after: int, limit: int
) -> tuple[list[SelectedMessage], int | None]:
    """The page, before any body of it is read."""
    chosen: list[SelectedMessage] = []
    deadline = broker.clock.monotonic() + MAX_SECONDS
    bytes_left = MAX_BYTES
    for _ in range(MAX_BATCHES):
        # One more than the page holds tells whether there is another.
        size = min(limit + 1, BATCH_SIZE) if isinstance(message_filter, MatchAll) else BATCH_SIZE
        look = await read_filtered(
            broker, message_filter, partial(broker.store.browse_metadata, queue.id, states, after, size)
        )
        chosen += look.matches
        bytes_left -= look.weight
        if len(chosen) > limit:
            return chosen[:limit], chosen[limit - 1].sequence_number
        if look.last is None or look.count < size:
            return chosen, None
        after = look.last.sequence_number
        if bytes_left <= 0 or broker.clock.monotonic() >= deadline:
            break
    return chosen, after


async def read_message(broker: Broker, queue: Queue, sequence_number: int) -> Message:
    """One message in whatever state. Refuses with `MessageNotFound`."""
    async with broker.response_budget.reserve(queue.settings.max_message_bytes):
        message = await broker.store.read(queue.id, sequence_number)
    if message is None:
        raise MessageNotFound(f"Queue {queue.name} holds no message {sequence_number}.")
    return message
