"""Searches: how far filtered receives have scanned, so that no scan starts at the front again.

A search belongs to a wait key and a filter, and all receivers with that filter share it. It proceeds in the order of
delivery and stores the position that it has reached. A message that becomes receivable behind that position is noted by
its sequence number; other processes send notifications for those that they know of. A second, slower rescan visits all
messages again and finds those whose notification was lost.
"""

import asyncio
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext

from app.broker.filtering.filters import Filter, MatchAll
from app.domain.delivery import START_POSITION, DeliveryPosition
from app.domain.message import MAX_PROPERTIES_BYTES
from app.domain.refusals import Overloaded, RateLimited
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from app.runtime.clock import Clock
from app.runtime.throttle import Throttle

_MAX_MISSED = 500
"""Sequence numbers that one search notes. Above that it starts at the front again."""

_MAX_IDLE_SEARCHES = 500
"""Searches that are kept without a receiver."""

_RESCAN_SECONDS = 1.0
"""How often a search that has reached the end rescans what it has passed."""

_MAX_TIME_SHARE = 0.5
"""The share of its time that a process may spend on filtered reads: receives, pages, purges and redrives together."""

MAX_FILTERED_REQUESTS = 100
"""Requests besides receives that read through a filter at a time. Each of their reads waits for those of the others and of
the receivers: with a hundred more, it waits for seconds."""

MAX_BATCH_SIZE = 200
"""Messages per read, without their bodies. Each has at most 32 KiB of properties, so one read has less than 8 MiB. At
most one filtered and one unfiltered read run at a time. It limits no request."""


RETRY_LATER = "The request had no effect; try again after the time in Retry-After."


class SearchState:
    """The state of one search. A lost position costs time but no message: it only says where to scan next."""

    __slots__ = ("_bytes_each", "_missed", "_rescan_due", "active_scans", "position", "receivers", "rescan_position")

    def __init__(self, now: float) -> None:
        self.position: DeliveryPosition = START_POSITION
        self.rescan_position: DeliveryPosition = START_POSITION
        self._rescan_due = now + _RESCAN_SECONDS
        self._bytes_each = float(MESSAGE_OVERHEAD_BYTES + MAX_PROPERTIES_BYTES)
        self.active_scans = 0
        self.receivers = 0
        self._missed: dict[int, None] = {}

    def note_receivable(self, number: int, position: DeliveryPosition | None) -> None:
        """Note a message that became receivable, unless the scan has yet to reach its position."""
        is_ahead = self.position == START_POSITION or (position is not None and position > self.position)
        if is_ahead and not self.active_scans:
            return
        self._missed[number] = None
        if len(self._missed) > _MAX_MISSED:
            self._missed.clear()
            self.position = START_POSITION

    def take_missed(self, max_count: int) -> list[int]:
        """Return and forget up to `max_count` noted numbers, lowest first."""
        numbers = sorted(self._missed)[:max_count]
        for number in numbers:
            del self._missed[number]
        return numbers

    def start_rescan(self, now: float) -> bool:
        """Return whether a rescan is due, and postpone the next one."""
        if now < self._rescan_due:
            return False
        self._rescan_due = now + _RESCAN_SECONDS
        return True

    def batch_size(self, max_messages: int, max_bytes: int) -> int:
        """Return how many messages to read, estimated from the weights in the last read."""
        return max(1, min(max_messages, int(max_bytes / self._bytes_each)))

    def record_batch(self, messages: int, weight: int) -> None:
        """Record that a read returned these messages, with this total weight."""
        if messages:
            self._bytes_each = weight / messages

    def advance(self, start: DeliveryPosition, end: DeliveryPosition) -> None:
        """Move the position from `start` to `end`, unless another scan has moved it meanwhile."""
        if self.position == start:
            self.position = end


class SearchRegistry:
    """All searches of a process, and the share of time for their reads.

    Refuses with `RateLimited` more than `max_receivers` concurrent receivers with filters, and with `Overloaded` more than
    `max_requests` other requests with filters.
    """

    def __init__(
        self,
        clock: Clock,
        max_receivers: int,
        max_idle: int = _MAX_IDLE_SEARCHES,
        max_requests: int = MAX_FILTERED_REQUESTS,
    ) -> None:
        self._share = Throttle(clock, _MAX_TIME_SHARE)
        self._unfiltered = asyncio.Lock()
        self._clock = clock
        self._max_receivers = max_receivers
        self._max_idle = max_idle
        self._max_requests = max_requests
        self._receivers = 0
        self._requests = 0
        self.by_wait_key: dict[int, dict[Filter, SearchState]] = {}
        """The searches of each wait key that has any."""
        self._idle: dict[tuple[int, Filter], None] = {}

    @contextmanager
    def join(self, wait_key: int, message_filter: Filter) -> Generator[SearchState]:
        """Join the search of this wait key and filter, from the first read to the response."""
        if self._receivers >= self._max_receivers:
            limit = f"limit of receivers with a filter (PEEKLOCK_MAX_FILTERED_RECEIVERS): {self._max_receivers}"
            raise RateLimited(f"This server has reached its {limit}.")
        search = self.by_wait_key.setdefault(wait_key, {}).setdefault(
            message_filter, SearchState(self._clock.monotonic())
        )
        self._idle.pop((wait_key, message_filter), None)
        self._receivers += 1
        search.receivers += 1
        try:
            yield search
        finally:
            self._receivers -= 1
            search.receivers -= 1
            if not search.receivers:
                self._keep_idle(wait_key, message_filter)

    def admit(self, message_filter: Filter) -> AbstractContextManager[None]:
        """Admit a request that is not a receive, from before its first read through this filter to its last.

        Refuses with `Overloaded` if too many such requests read or wait. Unfiltered reads are fast and always admitted.
        """
        return nullcontext() if isinstance(message_filter, MatchAll) else self.admit_filtered()

    @contextmanager
    def admit_filtered(self) -> Generator[None]:
        """Admit a request whose reads look for some messages among many. Refuses as `admit` does."""
        if self._requests >= self._max_requests:
            raise Overloaded(f"This server already reads for {self._requests} requests with a filter. {RETRY_LATER}")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    def turn(self, message_filter: Filter) -> AbstractAsyncContextManager[None]:
        """Return the lock for one read through this filter: reads run one at a time, for every operation.

        Unfiltered reads are fast and wait only for each other. Without their turns, the bytes that all of them hold
        would have no bound.
        """
        return self._unfiltered if isinstance(message_filter, MatchAll) else self.filtered_turn()

    def filtered_turn(self) -> AbstractAsyncContextManager[None]:
        """Return the lock for one read that looks for some messages among many."""
        return self._share

    def note_receivable(self, wait_key: int, number: int, position: DeliveryPosition | None) -> None:
        """Note a message that became receivable in the searches of a wait key, with its position if known."""
        for search in self.by_wait_key.get(wait_key, {}).values():
            search.note_receivable(number, position)

    def has_receivers(self, wait_key: int) -> bool:
        """Return whether a receiver with a filter scans or waits on this wait key."""
        return any(search.receivers for search in self.by_wait_key.get(wait_key, {}).values())

    def _keep_idle(self, wait_key: int, message_filter: Filter) -> None:
        self._idle[wait_key, message_filter] = None
        if len(self._idle) > self._max_idle:
            oldest_key, oldest = next(iter(self._idle))
            del self._idle[oldest_key, oldest]
            searches = self.by_wait_key[oldest_key]
            del searches[oldest]
            if not searches:
                del self.by_wait_key[oldest_key]
