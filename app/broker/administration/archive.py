"""The archive of ended messages: read it, the newest first, without changing anything, and trim what was copied.

The archive is in the order of the sequence numbers, so a page reads it backwards from a number. Rows without bodies and
properties are small: only the number of rows and the time of a page are limited.
"""

from collections.abc import Callable, Sequence
from math import inf

from app.broker.administration.ports import AdministrationPorts
from app.domain.archive import ArchivedMessage, CopiedBatch, TrimResult
from app.domain.queue import Queue

AFTER_ALL = (1 << 63) - 1
"""A number above those of all messages: where the first page begins."""


async def browse_archive(
    ports: AdministrationPorts, is_wanted: Callable[[ArchivedMessage], bool], before: int, limit: int
) -> tuple[list[ArchivedMessage], int | None]:
    """Return wanted messages below sequence number `before`, descending, and the `before` of the next page.

    The next `before` is None on the last page. A page before the last may be short or empty. Refuses with `Overloaded` if
    too many requests with a filter read.
    """
    with ports.searches.admit_filtered():
        return await _select_page(ports, is_wanted, before, limit)


async def _select_page(
    ports: AdministrationPorts, is_wanted: Callable[[ArchivedMessage], bool], before: int, limit: int
) -> tuple[list[ArchivedMessage], int | None]:
    chosen: list[ArchivedMessage] = []
    limits = ports.page_limits
    deadline = ports.clock.monotonic() + limits.max_seconds
    for _ in range(limits.max_batches):
        async with ports.searches.filtered_turn():
            batch = await ports.store.archive.ended_before(before, limits.batch_size)
            chosen += [message for message in batch if is_wanted(message)]
        if len(chosen) > limit:
            return chosen[:limit], chosen[limit - 1].sequence_number
        if len(batch) < limits.batch_size:
            return chosen, None
        before = batch[-1].sequence_number
        if ports.clock.monotonic() >= deadline:
            break
    return chosen, before


async def read_archived(ports: AdministrationPorts, queue: Queue, sequence_number: int) -> ArchivedMessage | None:
    """Return an ended message of the queue, None if the archive does not have it."""
    found = await ports.store.archive.ended_before(sequence_number + 1, 1)
    is_found = found and (found[0].sequence_number, found[0].queue_id) == (sequence_number, queue.id)
    return found[0] if is_found else None


async def trim(
    ports: AdministrationPorts, copies: Sequence[CopiedBatch], timeout_seconds: float = inf
) -> list[TrimResult]:
    """Remove these copied batches, one transaction each; return a result for each.

    Batches that were not reached before the timeout have no result. A repeated call continues with them.
    """
    deadline = ports.clock.monotonic() + timeout_seconds
    results: list[TrimResult] = []
    for copy in copies:
        results.append(await ports.store.archive.trim(copy))
        if ports.clock.monotonic() >= deadline:
            break
    ports.counters.count("batches_trimmed", results.count(TrimResult.TRIMMED))
    return results
