"""Select the messages of a purge or redrive, in bounded batches."""

import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from app.broker.filtered_read import read_filtered
from app.broker.filters import Filter
from app.broker.ports import SelectStore
from app.broker.search_state import MAX_BATCH_SIZE, SearchRegistry
from app.domain.message import MessageMetadata, MessageState, SelectedMessage
from app.domain.queue import Queue
from app.domain.weight import content_bytes


@dataclass(frozen=True, slots=True)
class MessageSelection:
    """Which messages: in these states, matched by the filter, at most `limit` of them (None: all).

    Messages with more than `max_message_bytes` of body and properties are left out. A statement reads `batch_size`
    messages: a purge of millions never holds more than this many rows.
    """

    states: Sequence[MessageState]
    message_filter: Filter
    limit: int | None = None
    max_message_bytes: int = sys.maxsize
    batch_size: int = MAX_BATCH_SIZE


async def select_batches(
    messages: SelectStore, searches: SearchRegistry, queue: Queue, selection: MessageSelection
) -> AsyncIterator[list[SelectedMessage]]:
    """Yield batches of the selected messages that existed at the start; each read waits for its turn.

    A read without a match yields an empty batch. Messages that are sent later are left out: otherwise a scan without a
    match would never catch up with fast senders.
    """
    after, newest = 0, await messages.last_sequence_number()
    remaining = selection.limit
    while remaining is None or remaining > 0:
        read = partial(_read, messages, queue, selection, after, newest)
        batch = await read_filtered(searches, selection.message_filter, read)
        if batch.last is None:
            return
        after = batch.last.sequence_number
        fitting = [message for message in batch.matches if content_bytes(message) <= selection.max_message_bytes]
        chosen = fitting[:remaining]
        if remaining is not None:
            remaining -= len(chosen)
        yield chosen


async def _read(
    messages: SelectStore, queue: Queue, selection: MessageSelection, after: int, newest: int
) -> list[MessageMetadata]:
    page = await messages.browse_metadata(queue.id, selection.states, after, selection.batch_size)
    return [message for message in page if message.sequence_number <= newest]
