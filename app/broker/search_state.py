"""Searches: how far receivers with filters have looked, so that no look begins at the front again.

A search belongs to a line and a filter, and all receivers with that filter share it. It goes along the order of
delivery and remembers the place that it has reached. A message that becomes receivable behind that place is noted
as news by its number; other processes tell of those that they know of. What is lost on that way is found by a second,
slower walk, which visits the whole line again.
"""

import asyncio
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager

from app.broker.filters import Filter, MatchAll
from app.domain.delivery import START_POSITION, DeliveryPosition
from app.domain.message import MAX_PROPERTIES_BYTES
from app.domain.refusals import RateLimited
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from app.runtime.clock import Clock
from app.runtime.throttle import Throttle

MAX_MISSED = 500
"""Numbers that one search remembers. Above that it begins at the front again."""

MAX_IDLE_SEARCHES = 500
"""Searches that are remembered while no receiver has their filter."""

RESCAN_SECONDS = 1.0
"""How often a search that has come to the end looks again at what it has passed."""

MAX_TIME_SHARE = 0.5
"""How much of its time a process may look through filters: for receivers, pages, purges and redrives together."""

MAX_BATCH_SIZE = 200
"""Messages that one look reads, without their bodies. The properties of each have at most 32 KiB, so those of a look have
less than 8 MiB; and no two looks through filters are under way at once, nor two without."""


class SearchState:
    """The state of one search; its places only say where to look next, so a lost one costs time and no message."""

    __slots__ = ("_bytes_each", "_missed", "_rescan_due", "active_scans", "position", "receivers", "rescan_position")

    def __init__(self, now: float) -> None:
        self.position: DeliveryPosition = START_POSITION
        self.rescan_position: DeliveryPosition = START_POSITION
        self._rescan_due = now + RESCAN_SECONDS
        self._bytes_each = float(MESSAGE_OVERHEAD_BYTES + MAX_PROPERTIES_BYTES)
        self.active_scans = 0
        self.receivers = 0
        self._missed: dict[int, None] = {}

    def note_receivable(self, number: int, position: DeliveryPosition | None) -> None:
        """Remember a message that became receivable, unless the walk has yet to reach its place."""
        is_ahead = self.position == START_POSITION or (position is not None and position > self.position)
        if is_ahead and not self.active_scans:
            return
        self._missed[number] = None
        if len(self._missed) > MAX_MISSED:
            self._missed.clear()
            self.position = START_POSITION

    def take_missed(self, max_count: int) -> list[int]:
        """The numbers that were noted first, which are forgotten by that."""
        numbers = sorted(self._missed)[:max_count]
        for number in numbers:
            del self._missed[number]
        return numbers

    def start_rescan(self, now: float) -> bool:
        """Whether it is time to look again at what the walk has passed; then not again for some time."""
        if now < self._rescan_due:
            return False
        self._rescan_due = now + RESCAN_SECONDS
        return True

    def batch_size(self, largest: int, max_bytes: int) -> int:
        """How many messages a look may read, by what those of the last look have weighed."""
        return max(1, min(largest, int(max_bytes / self._bytes_each)))

    def record_batch(self, messages: int, weight: int) -> None:
        """A look has read these messages of this weight together."""
        if messages:
            self._bytes_each = weight / messages

    def advance(self, start: DeliveryPosition, end: DeliveryPosition) -> None:
        """The walk has come from one place to another, unless it was sent elsewhere meanwhile."""
        if self.position == start:
            self.position = end


class SearchRegistry:
    """All searches of a process, and the time that they may take together.

    Refuses with `RateLimited` more than `most_receivers` receivers with filters at once.
    """

    def __init__(self, clock: Clock, max_receivers: int) -> None:
        self._share = Throttle(clock, MAX_TIME_SHARE)
        self._unfiltered = asyncio.Lock()
        self._clock = clock
        self._most_receivers = max_receivers
        self._receivers = 0
        self._by_wait_key: dict[int, dict[Filter, SearchState]] = {}
        self._idle: dict[tuple[int, Filter], None] = {}

    @contextmanager
    def join(self, wait_key: int, message_filter: Filter) -> Generator[SearchState]:
        """The search that a receiver takes part in, from its first look to its answer."""
        if self._receivers >= self._most_receivers:
            limit = f"limit of receivers with a filter (PEEKLOCK_MAX_FILTERED_RECEIVERS): {self._most_receivers}"
            raise RateLimited(f"This server has reached its {limit}.")
        search = self._by_wait_key.setdefault(wait_key, {}).setdefault(
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

    def turn(self, message_filter: Filter) -> AbstractAsyncContextManager[None]:
        """The turn of one look through this filter, for every kind of look: no two are under way at once.

        A look that lets everything through takes next to no time and waits only for others of its kind: what all of
        them have read together would have no bound.
        """
        return self._unfiltered if isinstance(message_filter, MatchAll) else self._share

    def note_receivable(self, wait_key: int, number: int, position: DeliveryPosition | None) -> None:
        """Tell the searches of a line of a message that became receivable, and of its place where that is known."""
        for search in self._by_wait_key.get(wait_key, {}).values():
            search.note_receivable(number, position)

    def has_receivers(self, wait_key: int) -> bool:
        """Whether a receiver looks or waits in this line through a filter."""
        return any(search.receivers for search in self._by_wait_key.get(wait_key, {}).values())

    def _keep_idle(self, wait_key: int, message_filter: Filter) -> None:
        self._idle[wait_key, message_filter] = None
        if len(self._idle) > MAX_IDLE_SEARCHES:
            oldest_key, oldest = next(iter(self._idle))
            del self._idle[oldest_key, oldest]
            searches = self._by_wait_key[oldest_key]
            del searches[oldest]
            if not searches:
                del self._by_wait_key[oldest_key]
