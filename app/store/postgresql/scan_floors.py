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
from app.domain.message import MAX_PRIORITY, MIN_PRIORITY

ScanPosition: TypeAlias = tuple[Instant, int]
"""Where a message stands among those of its queue and priority: since when it is available, and its number."""

START: ScanPosition = (0, 0)
PRIORITIES = range(MAX_PRIORITY, MIN_PRIORITY - 1, -1)
ALL_START = [START] * len(PRIORITIES)

COSTLY_SCAN = 1000
"""Entries gone past in vain that cost about as much as the claim itself."""

SECONDS_PER_ENTRY = 2e-7
"""What it costs to go past one, measured."""

MAX_TRUST_SECONDS = 1.0
MAX_SHARE = 1 / 10
"""A floor is trusted for a second, or longer where looking below it would take more than this share of the time."""

MAX_SHARE_WHEN_SHORT = 1 / 50
"""A claim that came short looks below the floor sooner, if that takes no more than this share of the time."""

COMMIT_LAG = SECOND
"""What a look does not see although it is older than this was put there by another process in a long transaction."""


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What a look has brought from one queue: priority and place of its last message, and whether nothing was left."""

    last: tuple[int, ScanPosition] | None
    is_exhausted: bool


class ScanFloor:
    """One queue's floors: a place for each priority, and when it was last looked below them."""

    __slots__ = ("_cheap_at", "_cost_seconds", "_stale_at", "positions")

    def __init__(self, scanned_at: float, skipped: int) -> None:
        self.positions = [START] * len(PRIORITIES)
        self._cost_seconds = skipped * SECONDS_PER_ENTRY
        self._stale_at = scanned_at + max(MAX_TRUST_SECONDS, self._cost_seconds / MAX_SHARE)
        self.scan_below(scanned_at)

    def scan_below(self, now: float) -> None:
        """Note that a claim looks below now, so that the next one that comes short need not."""
        self._cheap_at = min(now + self._cost_seconds / MAX_SHARE_WHEN_SHORT, self._stale_at)

    def is_stale(self, now: float) -> bool:
        """Whether it is time to look below."""
        return now >= self._stale_at

    def is_cheap_to_scan_below(self, now: float) -> bool:
        """Whether it may be looked below already, by a claim that came short."""
        return now >= self._cheap_at

    def raise_to(self, result: ScanResult, read_at: Instant) -> None:
        """Rise to what a look has shown: all before the last message is taken or was never there."""
        committed: ScanPosition = (read_at - COMMIT_LAG, 0)
        last_priority, last_position = result.last or (MAX_PRIORITY, START)
        self._raise(last_priority, last_position)
        for priority in PRIORITIES:
            if result.is_exhausted or priority > last_priority:
                self._raise(priority, committed)

    def _raise(self, priority: int, position: ScanPosition) -> None:
        self.positions[priority] = max(self.positions[priority], position)

    def lower(self, priority: int, position: ScanPosition) -> None:
        """Sink so far that the place is not below."""
        self.positions[priority] = min(self.positions[priority], position)


class Scan:
    """One statement under way that looks for messages in some queues, and what happened to them meanwhile."""

    __slots__ = ("_changed", "_floors", "_lowered", "from_start", "queue_ids")

    def __init__(self, queue_ids: Sequence[int], floors: Mapping[int, ScanFloor]) -> None:
        self.queue_ids = queue_ids
        self.from_start = frozenset(queue_ids) - floors.keys()
        self._floors = floors
        self._lowered: dict[tuple[int, int], ScanPosition] = {}
        self._changed: set[int] = set()

    def positions(self) -> list[ScanPosition]:
        """Where to begin: for each queue in turn a place for each priority, the highest first; none for the bottom."""
        if not self._floors:
            return []
        positions: list[ScanPosition] = []
        for queue_id in self.queue_ids:
            floor = self._floors.get(queue_id)
            positions += [floor.positions[priority] for priority in PRIORITIES] if floor else ALL_START
        return positions

    def note_lowered(self, queue_id: int, priority: int, position: ScanPosition) -> None:
        """Something was put at this place, perhaps too late for the look to see it."""
        key = (queue_id, priority)
        self._lowered[key] = min(position, self._lowered.get(key, position))

    def note_changed(self, queue_id: int) -> None:
        """Something was put nobody knows where."""
        self._changed.add(queue_id)

    def is_valid_for(self, queue_id: int) -> bool:
        """Whether what it saw still says where a floor may be."""
        return queue_id not in self._changed

    def lower_floor(self, queue_id: int, floor: ScanFloor) -> None:
        """Lower a floor by what came meanwhile."""
        for (of_queue, priority), position in self._lowered.items():
            if of_queue == queue_id:
                floor.lower(priority, position)


class ScanFloors:
    """The floors of all queues, and the looks that are under way. Without dear looks there are none."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._floors: dict[int, ScanFloor] = {}
        self._scans: set[Scan] = set()

    @property
    def is_idle(self) -> bool:
        """Whether nobody needs to hear of what is put where."""
        return not (self._floors or self._scans)

    def needs_update(self, skipped: int) -> bool:
        """Whether `learn` would do anything with a look that went past so many entries."""
        return skipped >= COSTLY_SCAN or bool(self._floors)

    def scan(self, queue_ids: Sequence[int]) -> Scan:
        """Begin a look, from the floor where there is one that may still be trusted. To be ended by `finish`."""
        now = self._monotonic()
        usable = {
            queue_id: floor
            for queue_id in queue_ids
            if (floor := self._floors.get(queue_id)) and not floor.is_stale(now)
        }
        return self._begin(Scan(queue_ids, usable))

    def scan_below(self, queue_ids: Sequence[int]) -> Scan:
        """Begin a look from the bottom."""
        now = self._monotonic()
        for queue_id in queue_ids:
            if floor := self._floors.get(queue_id):
                floor.scan_below(now)
        return self._begin(Scan(queue_ids, {}))

    def cheap_to_scan_below(self, queue_ids: Sequence[int]) -> list[int]:
        """Those of these queues where a claim that came short may look from the bottom."""
        now = self._monotonic()
        return [
            queue_id
            for queue_id in queue_ids
            if (floor := self._floors.get(queue_id)) is None or floor.is_cheap_to_scan_below(now)
        ]

    def update(self, scan: Scan, result: Mapping[int, ScanResult], skipped: int, read_at: Instant) -> None:
        """Make floors of what a look has seen, or do without where looking from the bottom was cheap."""
        for queue_id in scan.queue_ids:
            if not scan.is_valid_for(queue_id):
                continue
            if queue_id in scan.from_start:
                self._floors.pop(queue_id, None)
                if skipped >= COSTLY_SCAN:
                    self._floors[queue_id] = ScanFloor(self._monotonic(), skipped)
            if floor := self._floors.get(queue_id):
                floor.raise_to(result[queue_id], read_at)
                scan.lower_floor(queue_id, floor)

    def finish(self, scan: Scan) -> None:
        """The look has ended, in whatever way."""
        self._scans.discard(scan)

    def lower(self, queue_id: int, priority: int, position: ScanPosition) -> None:
        """This process has put a message at this place."""
        for scan in self._scans:
            scan.note_lowered(queue_id, priority, position)
        if floor := self._floors.get(queue_id):
            floor.lower(priority, position)

    def discard(self, queue_id: int) -> None:
        """This process has put messages into the queue nobody knows where, or does not know what became of a claim."""
        for scan in self._scans:
            scan.note_changed(queue_id)
        self._floors.pop(queue_id, None)

    def _begin(self, scan: Scan) -> Scan:
        self._scans.add(scan)
        return scan
