"""Searches: how far receivers with filters have looked, so that no look begins at the front again.

A search belongs to a line and a filter, and all receivers with that filter share it. It goes along the order of
delivery and remembers the place that it has reached. A message that becomes receivable behind that place is noted
as news by its number; other processes tell of those that they know of. What is lost on that way is found by a second,
slower walk, which visits the whole line again.
"""

import asyncio
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager

from app.broker.filters import Everything, Filter
from app.domain.delivery import AHEAD_OF_ALL, Place
from app.domain.message import LARGEST_PROPERTIES
from app.domain.refusals import RateLimited
from app.domain.weight import ROW_BYTES
from app.runtime.clock import Clock
from app.runtime.share import Share

MOST_NEWS = 500
"""Numbers that one search remembers. Above that it begins at the front again."""

MOST_IDLE = 500
"""Searches that are remembered while no receiver has their filter."""

REVISIT_SECONDS = 1.0
"""How often a search that has come to the end looks again at what it has passed."""

SHARE_OF_TIME = 0.5
"""How much of its time a process may look through filters: for receivers, pages, purges and redrives together."""

LARGEST_LOOK = 200
"""Messages that one look reads, without their bodies. The properties of each have at most 32 KiB, so those of a look have
less than 8 MiB; and no two looks through filters are under way at once, nor two without."""


class Search:
    """The state of one search; its places only say where to look next, so a lost one costs time and no message."""

    __slots__ = ("_bytes_each", "_news", "_round_due", "looking", "receivers", "round_to", "walked_to")

    def __init__(self, now: float) -> None:
        self.walked_to: Place = AHEAD_OF_ALL
        self.round_to: Place = AHEAD_OF_ALL
        self._round_due = now + REVISIT_SECONDS
        self._bytes_each = float(ROW_BYTES + LARGEST_PROPERTIES)
        self.looking = 0
        self.receivers = 0
        self._news: dict[int, None] = {}

    def note(self, number: int, place: Place | None) -> None:
        """Remember a message that became receivable, unless the walk has yet to reach its place."""
        is_ahead = self.walked_to == AHEAD_OF_ALL or (place is not None and place > self.walked_to)
        if is_ahead and not self.looking:
            return
        self._news[number] = None
        if len(self._news) > MOST_NEWS:
            self._news.clear()
            self.walked_to = AHEAD_OF_ALL

    def take_news(self, most: int) -> list[int]:
        """The numbers that were noted first, which are forgotten by that."""
        numbers = sorted(self._news)[:most]
        for number in numbers:
            del self._news[number]
        return numbers

    def begins_round(self, now: float) -> bool:
        """Whether it is time to look again at what the walk has passed; then not again for some time."""
        if now < self._round_due:
            return False
        self._round_due = now + REVISIT_SECONDS
        return True

    def size_of_look(self, largest: int, most_bytes: int) -> int:
        """How many messages a look may read, by what those of the last look have weighed."""
        return max(1, min(largest, int(most_bytes / self._bytes_each)))

    def learn(self, messages: int, weight: int) -> None:
        """A look has read these messages of this weight together."""
        if messages:
            self._bytes_each = weight / messages

    def advance(self, began: Place, reached: Place) -> None:
        """The walk has come from one place to another, unless it was sent elsewhere meanwhile."""
        if self.walked_to == began:
            self.walked_to = reached


class Searches:
    """All searches of a process, and the time that they may take together.

    Refuses with `RateLimited` more than `most_receivers` receivers with filters at once.
    """

    def __init__(self, clock: Clock, most_receivers: int) -> None:
        self._share = Share(clock, SHARE_OF_TIME)
        self._unfiltered = asyncio.Lock()
        self._clock = clock
        self._most_receivers = most_receivers
        self._receivers = 0
        self._by_line: dict[int, dict[Filter, Search]] = {}
        self._idle: dict[tuple[int, Filter], None] = {}

    @contextmanager
    def enter(self, line: int, matching: Filter) -> Generator[Search]:
        """The search that a receiver takes part in, from its first look to its answer."""
        if self._receivers >= self._most_receivers:
            limit = f"limit of receivers with a filter (PEEKLOCK_MAX_FILTERED_RECEIVERS): {self._most_receivers}"
            raise RateLimited(f"This server has reached its {limit}.")
        search = self._by_line.setdefault(line, {}).setdefault(matching, Search(self._clock.monotonic()))
        self._idle.pop((line, matching), None)
        self._receivers += 1
        search.receivers += 1
        try:
            yield search
        finally:
            self._receivers -= 1
            search.receivers -= 1
            if not search.receivers:
                self._keep_idle(line, matching)

    def turn(self, matching: Filter) -> AbstractAsyncContextManager[None]:
        """The turn of one look through this filter, for every kind of look: no two are under way at once.

        A look that lets everything through takes next to no time and waits only for others of its kind: what all of
        them have read together would have no bound.
        """
        return self._unfiltered if isinstance(matching, Everything) else self._share

    def note(self, line: int, number: int, place: Place | None) -> None:
        """Tell the searches of a line of a message that became receivable, and of its place where that is known."""
        for search in self._by_line.get(line, {}).values():
            search.note(number, place)

    def has_receivers(self, line: int) -> bool:
        """Whether a receiver looks or waits in this line through a filter."""
        return any(search.receivers for search in self._by_line.get(line, {}).values())

    def _keep_idle(self, line: int, matching: Filter) -> None:
        self._idle[line, matching] = None
        if len(self._idle) > MOST_IDLE:
            oldest_line, oldest = next(iter(self._idle))
            del self._idle[oldest_line, oldest]
            searches = self._by_line[oldest_line]
            del searches[oldest]
            if not searches:
                del self._by_line[oldest_line]
