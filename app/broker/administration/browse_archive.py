"""Browse the archive: read ended messages of all queues, the newest first, without changing anything.

The archive is in the order of the sequence numbers, so a page reads it backwards from a number. Rows without bodies and
properties are small: only the number of rows and the time of a page are limited.
"""

from collections.abc import Callable
from dataclasses import dataclass

from app.broker.administration.browse import PageLimits
from app.broker.filtering.search_state import SearchRegistry
from app.broker.ports import EndedStore
from app.domain.archive import ArchivedMessage
from app.domain.queue import Queue
from app.runtime.clock import Clock

AFTER_ALL = (1 << 63) - 1
"""A number above those of all messages: where the first page begins."""


@dataclass(frozen=True, slots=True)
class ArchivePorts:
    """What reads of the archive use."""

    archive: EndedStore
    searches: SearchRegistry
    page_limits: PageLimits
    clock: Clock


async def browse_archive(
    ports: ArchivePorts, is_wanted: Callable[[ArchivedMessage], bool], before: int, limit: int
) -> tuple[list[ArchivedMessage], int | None]:
    """Return wanted messages below sequence number `before`, descending, and the `before` of the next page.

    The next `before` is None on the last page. A page before the last may be short or empty. Refuses with `Overloaded` if
    too many requests with a filter read.
    """
    with ports.searches.admit_filtered():
        return await _select_page(ports, is_wanted, before, limit)


async def _select_page(
    ports: ArchivePorts, is_wanted: Callable[[ArchivedMessage], bool], before: int, limit: int
) -> tuple[list[ArchivedMessage], int | None]:
    chosen: list[ArchivedMessage] = []
    limits = ports.page_limits
    deadline = ports.clock.monotonic() + limits.max_seconds
    for _ in range(limits.max_batches):
        async with ports.searches.filtered_turn():
            batch = await ports.archive.ended_before(before, limits.batch_size)
            chosen += [message for message in batch if is_wanted(message)]
        if len(chosen) > limit:
            return chosen[:limit], chosen[limit - 1].sequence_number
        if len(batch) < limits.batch_size:
            return chosen, None
        before = batch[-1].sequence_number
        if ports.clock.monotonic() >= deadline:
            break
    return chosen, before


async def read_archived(ports: ArchivePorts, queue: Queue, sequence_number: int) -> ArchivedMessage | None:
    """Return an ended message of the queue, None if the archive does not have it."""
    found = await ports.archive.ended_before(sequence_number + 1, 1)
    is_found = found and (found[0].sequence_number, found[0].queue_id) == (sequence_number, queue.id)
    return found[0] if is_found else None
