"""Where a claim begins to look, once dead index entries have made it dear to look from the beginning.

PostgreSQL keeps an index entry of every message that was claimed until no snapshot can see it any more. While a backup
runs, thousands of them pile up at the very place where a claim begins. A claim says how many entries it went past; when
that was dear, this process remembers for the queue, priority by priority, a place below which nothing waits, and lets
claims begin there.

Whatever this process itself puts below a floor lowers it, so its own order is exact. What another process puts there is
found when somebody looks from the bottom again: after a second, or sooner when a claim came short and the look is cheap.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.domain.instant import SECOND, Instant
from app.domain.message import HIGHEST_PRIORITY, LOWEST_PRIORITY

Place: TypeAlias = tuple[Instant, int]
"""Where a message stands among those of its queue and priority: since when it is available, and its number."""

BOTTOM: Place = (0, 0)
PRIORITIES = range(HIGHEST_PRIORITY, LOWEST_PRIORITY - 1, -1)
ALL_BOTTOM = [BOTTOM] * len(PRIORITIES)

DEAR = 1000
"""Entries gone past in vain that cost about as much as the claim itself."""

SECONDS_PER_ENTRY = 2e-7
"""What it costs to go past one, measured."""

LONGEST_TRUST_SECONDS = 1.0
LARGEST_SHARE = 1 / 10
"""A floor is trusted for a second, or longer where looking below it would take more than this share of the time."""

SHARE_WHEN_SHORT = 1 / 50
"""A claim that came short looks below the floor sooner, if that takes no more than this share of the time."""

SETTLING = SECOND
"""What a look does not see although it is older than this was put there by another process in a long transaction."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look has brought from one queue: priority and place of its last message, and whether nothing was left."""

    last: tuple[int, Place] | None
    is_exhausted: bool


class Floor:
    """One queue's floors: a place for each priority, and when it was last looked below them."""

    __slots__ = ("_affordable_at", "_cost_seconds", "_stale_at", "places")

    def __init__(self, looked_at: float, passed: int) -> None:
        self.places = [BOTTOM] * len(PRIORITIES)
        self._cost_seconds = passed * SECONDS_PER_ENTRY
        self._stale_at = looked_at + max(LONGEST_TRUST_SECONDS, self._cost_seconds / LARGEST_SHARE)
        self.look_below(looked_at)

    def look_below(self, now: float) -> None:
        """Note that a claim looks below now, so that the next one that comes short need not."""
        self._affordable_at = min(now + self._cost_seconds / SHARE_WHEN_SHORT, self._stale_at)

    def is_stale(self, now: float) -> bool:
        """Whether it is time to look below."""
        return now >= self._stale_at

    def is_cheap_to_pass(self, now: float) -> bool:
        """Whether it may be looked below already, by a claim that came short."""
        return now >= self._affordable_at

    def rise(self, seen: Seen, read_at: Instant) -> None:
        """Rise to what a look has shown: all before the last message is taken or was never there."""
        settled: Place = (read_at - SETTLING, 0)
        last_priority, last_place = seen.last or (HIGHEST_PRIORITY, BOTTOM)
        self._raise(last_priority, last_place)
        for priority in PRIORITIES:
            if seen.is_exhausted or priority > last_priority:
                self._raise(priority, settled)

    def _raise(self, priority: int, place: Place) -> None:
        self.places[priority] = max(self.places[priority], place)

    def sink(self, priority: int, place: Place) -> None:
        """Sink so far that the place is not below."""
        self.places[priority] = min(self.places[priority], place)


class Look:
    """One statement under way that looks for messages in some queues, and what happened to them meanwhile."""

    __slots__ = ("_changed", "_floors", "_lowered", "from_bottom", "queue_ids")

    def __init__(self, queue_ids: Sequence[int], floors: Mapping[int, Floor]) -> None:
        self.queue_ids = queue_ids
        self.from_bottom = frozenset(queue_ids) - floors.keys()
        self._floors = floors
        self._lowered: dict[tuple[int, int], Place] = {}
        self._changed: set[int] = set()

    def places(self) -> list[Place]:
        """Where to begin: for each queue in turn a place for each priority, the highest first; none for the bottom."""
        if not self._floors:
            return []
        places: list[Place] = []
        for queue_id in self.queue_ids:
            floor = self._floors.get(queue_id)
            places += [floor.places[priority] for priority in PRIORITIES] if floor else ALL_BOTTOM
        return places

    def note_lowered(self, queue_id: int, priority: int, place: Place) -> None:
        """Something was put at this place, perhaps too late for the look to see it."""
        key = (queue_id, priority)
        self._lowered[key] = min(place, self._lowered.get(key, place))

    def note_changed(self, queue_id: int) -> None:
        """Something was put nobody knows where."""
        self._changed.add(queue_id)

    def is_valid_for(self, queue_id: int) -> bool:
        """Whether what it saw still says where a floor may be."""
        return queue_id not in self._changed

    def sink(self, queue_id: int, floor: Floor) -> None:
        """Lower a floor by what came meanwhile."""
        for (of_queue, priority), place in self._lowered.items():
            if of_queue == queue_id:
                floor.sink(priority, place)


class Floors:
    """The floors of all queues, and the looks that are under way. Without dear looks there are none."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._floors: dict[int, Floor] = {}
        self._looks: set[Look] = set()

    @property
    def is_idle(self) -> bool:
        """Whether nobody needs to hear of what is put where."""
        return not (self._floors or self._looks)

    def can_learn(self, passed: int) -> bool:
        """Whether `learn` would do anything with a look that went past so many entries."""
        return passed >= DEAR or bool(self._floors)

    def look(self, queue_ids: Sequence[int]) -> Look:
        """Begin a look, from the floor where there is one that may still be trusted. To be ended by `finish`."""
        now = self._monotonic()
        usable = {
            queue_id: floor
            for queue_id in queue_ids
            if (floor := self._floors.get(queue_id)) and not floor.is_stale(now)
        }
        return self._begin(Look(queue_ids, usable))

    def look_below(self, queue_ids: Sequence[int]) -> Look:
        """Begin a look from the bottom."""
        now = self._monotonic()
        for queue_id in queue_ids:
            if floor := self._floors.get(queue_id):
                floor.look_below(now)
        return self._begin(Look(queue_ids, {}))

    def cheap_to_pass(self, queue_ids: Sequence[int]) -> list[int]:
        """Those of these queues where a claim that came short may look from the bottom."""
        now = self._monotonic()
        return [
            queue_id
            for queue_id in queue_ids
            if (floor := self._floors.get(queue_id)) is None or floor.is_cheap_to_pass(now)
        ]

    def learn(self, look: Look, seen: Mapping[int, Seen], passed: int, read_at: Instant) -> None:
        """Make floors of what a look has seen, or do without where looking from the bottom was cheap."""
        for queue_id in look.queue_ids:
            if not look.is_valid_for(queue_id):
                continue
            if queue_id in look.from_bottom:
                self._floors.pop(queue_id, None)
                if passed >= DEAR:
                    self._floors[queue_id] = Floor(self._monotonic(), passed)
            if floor := self._floors.get(queue_id):
                floor.rise(seen[queue_id], read_at)
                look.sink(queue_id, floor)

    def finish(self, look: Look) -> None:
        """The look has ended, in whatever way."""
        self._looks.discard(look)

    def lower(self, queue_id: int, priority: int, place: Place) -> None:
        """This process has put a message at this place."""
        for look in self._looks:
            look.note_lowered(queue_id, priority, place)
        if floor := self._floors.get(queue_id):
            floor.sink(priority, place)

    def forget(self, queue_id: int) -> None:
        """This process has put messages into the queue nobody knows where, or does not know what became of a claim."""
        for look in self._looks:
            look.note_changed(queue_id)
        self._floors.pop(queue_id, None)

    def _begin(self, look: Look) -> Look:
        self._looks.add(look)
        return look
