"""Read many messages without their bodies and keep only a summary of the matches.

The properties of one batch may have several megabytes. So a caller never holds what a batch has read while it waits for
the next batch or for the store.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.broker.filtering.filters import Filter
from app.broker.filtering.search_state import SearchRegistry
from app.domain.message import MessageMetadata, SelectedMessage
from app.domain.weight import MESSAGE_OVERHEAD_BYTES, select_message

Read = Callable[[], Awaitable[Sequence[MessageMetadata]]]


@dataclass(frozen=True, slots=True)
class FilteredBatch:
    """The result of one read: the matches, and the number, weight without bodies and last one of all messages read."""

    matches: list[SelectedMessage]
    count: int
    weight: int
    last: SelectedMessage | None


async def read_filtered(searches: SearchRegistry, message_filter: Filter, read: Read) -> FilteredBatch:
    """Wait for this read's turn, read messages, and select those that match, in the order given."""
    async with searches.turn(message_filter):
        messages = await read()
        matches = [select_message(metadata) for metadata in await message_filter.select(messages)]
        weight = sum(MESSAGE_OVERHEAD_BYTES + len(message.envelope.properties) for message in messages)
        return FilteredBatch(matches, len(messages), weight, select_message(messages[-1]) if messages else None)
