"""Select the messages of a purge, redrive or restore, in bounded batches."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from app.broker.administration.ports import AdministrationPorts
from app.broker.filtering.filtered_read import read_filtered
from app.broker.filtering.filters import Filter
from app.broker.filtering.search_state import MAX_BATCH_SIZE, SearchRegistry
from app.broker.ports.store import Store
from app.domain.instant import Instant
from app.domain.message import MessageMetadata, MessageState, SelectedMessage
from app.domain.queue import Queue
from app.domain.weight import content_bytes


@dataclass(frozen=True, slots=True)
class MessageSelection:
    """Which messages: in these states, matched by the filter, at most `limit` of them (None: all).

    Messages with more than `max_message_bytes` of body and properties are left out. A statement reads `batch_size`
    messages: a purge of millions never holds more than this many rows. With `numbers`, at most `batch_size` of them, only
    these messages are read.
    """

    states: Sequence[MessageState]
    message_filter: Filter
    limit: int | None = None
    max_message_bytes: int = sys.maxsize
    batch_size: int = MAX_BATCH_SIZE
    numbers: Sequence[int] | None = None


async def select_batches(
    ports: AdministrationPorts, queue: Queue, selection: MessageSelection
) -> AsyncIterator[list[SelectedMessage]]:
    """Yield batches of the selected messages that existed at the start.

    Messages that are sent later are left out: otherwise a scan without a match would never catch up with fast senders.
    """
    newest = await ports.store.last_sequence_number()
    async for batch in _select(ports.searches, selection, partial(_read, ports.store, queue, selection, newest)):
        yield batch


async def select_restorable(
    ports: AdministrationPorts, queue: Queue, selection: MessageSelection, since: Instant
) -> AsyncIterator[list[SelectedMessage]]:
    """Yield batches of archived messages that ended since then and can be restored; their states do not matter.

    Messages that end after the start are left out: otherwise a purge would add what this restore has brought back.
    """
    read = partial(ports.store.restorable, queue.name, since, await ports.store.now(), limit=selection.batch_size)
    async for batch in _select(ports.searches, selection, read):
        yield batch


async def _select(
    searches: SearchRegistry, selection: MessageSelection, read_after: Callable[[int], Awaitable[list[MessageMetadata]]]
) -> AsyncIterator[list[SelectedMessage]]:
    """Yield batches of the selected messages in ascending order; each read waits for its turn.

    A read without a match yields an empty batch.
    """
    after = 0
    remaining = selection.limit
    while remaining is None or remaining > 0:
        batch = await read_filtered(searches, selection.message_filter, partial(read_after, after))
        if batch.last is None:
            return
        after = batch.last.sequence_number
        fitting = [message for message in batch.matches if content_bytes(message) <= selection.max_message_bytes]
        chosen = fitting[:remaining]
        if remaining is not None:
            remaining -= len(chosen)
        yield chosen


async def _read(
    store: Store, queue: Queue, selection: MessageSelection, newest: int, after: int
) -> list[MessageMetadata]:
    if selection.numbers is not None:
        named = await store.read_metadata(queue.id, [number for number in selection.numbers if number > after])
        return [message for message in named if message.state in selection.states]
    page = await store.browse_metadata(queue.id, selection.states, after, selection.batch_size)
    return [message for message in page if message.sequence_number <= newest]
