"""Remembers where a claim begins to scan, after dead index entries have made a scan from the start costly.

PostgreSQL keeps the index entry of a claimed message until no snapshot can see it any more. While a backup runs,
thousands of them pile up exactly where a claim begins. Each claim reports how many entries it skipped. When that was
costly, this process keeps a `ScanBound` for the queue: for each priority, a lower bound of the positions of available
messages. Claims begin there.

When this process stores a message below that position, it lowers the position, so its own order is exact. A message
that another process stores there is found by the next scan from the start: after a second, or sooner if a claim gets
nothing and the scan is cheap.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.domain.instant import SECOND, Instant
from app.domain.message import MAX_PRIORITY, MIN_PRIORITY

ScanPosition: TypeAlias = tuple[Instant, int]
"""The position of a message within its queue and priority: its `available_at`, and its number."""

START: ScanPosition = (0, 0)
PRIORITIES = range(MAX_PRIORITY, MIN_PRIORITY - 1, -1)
ALL_START = [START] * len(PRIORITIES)

COSTLY_SCAN = 1000
"""Skipped entries that cost about as much as the claim itself."""

SECONDS_PER_ENTRY = 2e-7
"""The measured cost of skipping one entry."""

MAX_TRUST_SECONDS = 1.0
MAX_SHARE = 1 / 10
"""A `ScanBound` is trusted for a second, or longer if scans below it would take more than `MAX_SHARE` of the time."""

MAX_SHARE_WHEN_SHORT = 1 / 50
"""A claim that got nothing scans below it sooner, if that takes no more than this share of the time."""

COMMIT_LAG = SECOND
"""How long another process's transaction may take to commit a message that a scan then does not see."""


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of a scan for one queue: priority and position of its last message, and whether no more were left."""

    last: tuple[int, ScanPosition] | None
    is_exhausted: bool


class ScanBound:
    """One queue's start position for each priority, and the time of the last scan below them."""

    __slots__ = ("_cheap_at", "_cost_seconds", "_stale_at", "positions")

    def __init__(self, scanned_at: float, skipped: int) -> None:
        self.positions = [START] * len(PRIORITIES)
        self._cost_seconds = skipped * SECONDS_PER_ENTRY
        self._stale_at = scanned_at + max(MAX_TRUST_SECONDS, self._cost_seconds / MAX_SHARE)
        self.scan_below(scanned_at)

    def scan_below(self, now: float) -> None:
        """Record that a claim scans below now, so that the next claim that gets nothing need not."""
        self._cheap_at = min(now + self._cost_seconds / MAX_SHARE_WHEN_SHORT, self._stale_at)

    def is_stale(self, now: float) -> bool:
        """Return whether a scan from the start is due."""
        return now >= self._stale_at

    def is_cheap_to_scan_below(self, now: float) -> bool:
        """Return whether a claim that got nothing may scan from the start already."""
        return now >= self._cheap_at

    def raise_to(self, result: ScanResult, read_at: Instant) -> None:
        """Rise to the position that a scan has proved: every message before its last one is taken or never existed."""
        committed: ScanPosition = (read_at - COMMIT_LAG, 0)
        last_priority, last_position = result.last or (MAX_PRIORITY, START)
        self._raise(last_priority, last_position)
        for priority in PRIORITIES:
            if result.is_exhausted or priority > last_priority:
                self._raise(priority, committed)

    def _raise(self, priority: int, position: ScanPosition) -> None:
        self.positions[priority] = max(self.positions[priority], position)

    def lower(self, priority: int, position: ScanPosition) -> None:
        """Move to this position if it is lower."""
        self.positions[priority] = min(self.positions[priority], position)


class Scan:
    """One running statement that scans some queues, and the changes that it may have missed."""

    __slots__ = ("_bounds", "_changed", "_lowered", "from_start", "queue_ids")

    def __init__(self, queue_ids: Sequence[int], bounds: Mapping[int, ScanBound]) -> None:
        self.queue_ids = queue_ids
        self.from_start = frozenset(queue_ids) - bounds.keys()
        self._bounds = bounds
        self._lowered: dict[tuple[int, int], ScanPosition] = {}
        self._changed: set[int] = set()

    def positions(self) -> list[ScanPosition]:
        """Return the start positions: per queue and priority, highest first; empty if every queue has none."""
        if not self._bounds:
            return []
        positions: list[ScanPosition] = []
        for queue_id in self.queue_ids:
            bound = self._bounds.get(queue_id)
            positions += [bound.positions[priority] for priority in PRIORITIES] if bound else ALL_START
        return positions

    def note_lowered(self, queue_id: int, priority: int, position: ScanPosition) -> None:
        """Record a message stored at this position, perhaps too late for the scan to see it."""
        key = (queue_id, priority)
        self._lowered[key] = min(position, self._lowered.get(key, position))

    def note_changed(self, queue_id: int) -> None:
        """Record that messages were stored at unknown positions."""
        self._changed.add(queue_id)

    def is_valid_for(self, queue_id: int) -> bool:
        """Return whether the result of this scan can still set a `ScanBound`."""
        return queue_id not in self._changed

    def lower(self, queue_id: int, bound: ScanBound) -> None:
        """Lower the positions to those of the messages stored during the scan."""
        for (of_queue, priority), position in self._lowered.items():
            if of_queue == queue_id:
                bound.lower(priority, position)


class ScanBounds:
    """The `ScanBound` of each queue that needs one, and the running scans. Without costly scans there is none."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._bounds: dict[int, ScanBound] = {}
        self._scans: set[Scan] = set()

    @property
    def is_idle(self) -> bool:
        """Return whether no stored message needs to be reported."""
        return not (self._bounds or self._scans)

    def needs_update(self, skipped: int) -> bool:
        """Return whether `update` would change anything after a scan that skipped this many entries."""
        return skipped >= COSTLY_SCAN or bool(self._bounds)

    def scan(self, queue_ids: Sequence[int]) -> Scan:
        """Begin a scan, from a `ScanBound` if a trusted one exists. The caller ends it with `finish`."""
        now = self._monotonic()
        usable = {
            queue_id: bound
            for queue_id in queue_ids
            if (bound := self._bounds.get(queue_id)) and not bound.is_stale(now)
        }
        return self._begin(Scan(queue_ids, usable))

    def scan_below(self, queue_ids: Sequence[int]) -> Scan:
        """Begin a scan from the start."""
        now = self._monotonic()
        for queue_id in queue_ids:
            if bound := self._bounds.get(queue_id):
                bound.scan_below(now)
        return self._begin(Scan(queue_ids, {}))

    def cheap_to_scan_below(self, queue_ids: Sequence[int]) -> list[int]:
        """Return those of these queues that a claim which got nothing may scan from the start."""
        now = self._monotonic()
        return [
            queue_id
            for queue_id in queue_ids
            if (bound := self._bounds.get(queue_id)) is None or bound.is_cheap_to_scan_below(now)
        ]

    def update(self, scan: Scan, result: Mapping[int, ScanResult], skipped: int, read_at: Instant) -> None:
        """Set each `ScanBound` from the result of a scan, or drop it if the scan from the start was cheap."""
        for queue_id in scan.queue_ids:
            if not scan.is_valid_for(queue_id):
                continue
            if queue_id in scan.from_start:
                self._bounds.pop(queue_id, None)
                if skipped >= COSTLY_SCAN:
                    self._bounds[queue_id] = ScanBound(self._monotonic(), skipped)
            if bound := self._bounds.get(queue_id):
                bound.raise_to(result[queue_id], read_at)
                scan.lower(queue_id, bound)

    def finish(self, scan: Scan) -> None:
        """End a scan, whether it succeeded or failed."""
        self._scans.discard(scan)

    def lower(self, queue_id: int, priority: int, position: ScanPosition) -> None:
        """Record that this process has stored a message at this position."""
        for scan in self._scans:
            scan.note_lowered(queue_id, priority, position)
        if bound := self._bounds.get(queue_id):
            bound.lower(priority, position)

    def discard(self, queue_id: int) -> None:
        """Drop the `ScanBound` of a queue: messages were stored at unknown positions, or a claim's outcome is unknown."""
        for scan in self._scans:
            scan.note_changed(queue_id)
        self._bounds.pop(queue_id, None)

    def _begin(self, scan: Scan) -> Scan:
        self._scans.add(scan)
        return scan
