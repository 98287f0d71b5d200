"""Looks: many messages read without their bodies, of which a few numbers are kept.

The properties of the messages of one look may have megabytes. So no caller holds what a look has read: not while it
waits for the next one, nor while the store does something with what was chosen.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.broker.broker import Broker
from app.broker.filters import Filter
from app.domain.message import MessageMetadata, SelectedMessage
from app.domain.weight import MESSAGE_OVERHEAD_BYTES, select_message

Read = Callable[[], Awaitable[Sequence[MessageMetadata]]]


@dataclass(frozen=True, slots=True)
class FilteredBatch:
    """What one look has found: the matches, how many messages it read, their weight without bodies, and the last."""

    matches: list[SelectedMessage]
    count: int
    weight: int
    last: SelectedMessage | None


async def read_filtered(broker: Broker, message_filter: Filter, read: Read) -> FilteredBatch:
    """Read messages, once it is this look's turn, and choose those that match, in the order given."""
    async with broker.searches.turn(message_filter):
        messages = await read()
        matches = [select_message(one) for one in await message_filter.select(messages)]
        weight = sum(MESSAGE_OVERHEAD_BYTES + len(one.envelope.properties) for one in messages)
        return FilteredBatch(matches, len(messages), weight, select_message(messages[-1]) if messages else None)
