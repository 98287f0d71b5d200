"""What has happened in queues within the last 15 minutes, kept in memory.

Each process keeps the events of the requests that it served itself. The numbers of messages are those of the store.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from app.api.http.metrics import MetricsSnapshot
from app.api.http.queue_statistics import QueueStatistics
from app.broker.ports import Counters
from app.broker.queues import QueueWithCounts
from app.console.latency import KINDS, NOT_KNOWN, Kind, Latencies
from app.domain.attention import Trend
from app.domain.instant import Duration, from_seconds
from app.domain.message import Message
from app.domain.settlement import Settlement
from app.runtime.clock import Clock, Signal

SAMPLE_SECONDS = 5.0
SAMPLES = 180
"""A sample each 5 seconds for 15 minutes."""

RATE_SAMPLES = 12
"""Rates are those of the last minute."""

MAX_QUEUES = 1000
"""Queues whose samples are kept, the first by name: 180 samples of 10 numbers, 7 kB for each queue."""

LARGEST = 2**32 - 1
"""The largest number of a sample; it has four bytes."""

SERIES_OF_EVENT = {
    "sent": "sent",
    "delivered": "delivered",
    "completed": "completed",
    "received": "completed",
    "abandoned": "failed",
    "lock_expired": "failed",
    "dead_lettered": "dead_lettered",
    "expired": "removed",
    "purged": "removed",
    "cancelled": "removed",
}
"""The series that counts each event of a message; the others are not shown."""

EVENT_SERIES = ("sent", "delivered", "completed", "failed", "dead_lettered", "removed")
SERIES = (*EVENT_SERIES, "waiting", "dead")
"""Events within each sample, and at its end the messages that wait and those that are dead-lettered."""


class QueueActivity:
    """The samples of one queue, the newest last."""

    __slots__ = ("_seconds", "_series")

    def __init__(self) -> None:
        self._series = {name: array("I") for name in SERIES}
        self._seconds: dict[Kind, array[float]] = {kind: array("f") for kind in KINDS}

    def add(self, events: Mapping[str, int], waiting: int, dead: int, seconds: Mapping[Kind, float]) -> None:
        """Add a sample, and drop what is older than 15 minutes. `seconds` has the average times that are known."""
        sample = {**events, "waiting": waiting, "dead": dead}
        for name, series in self._series.items():
            series.append(min(sample.get(name, 0), LARGEST))
        for kind, times in self._seconds.items():
            times.append(seconds.get(kind, NOT_KNOWN))
        if len(self._series["waiting"]) > SAMPLES:
            for kept in (*self._series.values(), *self._seconds.values()):
                del kept[0]

    def series(self, name: str) -> Sequence[int]:
        """Return a series, the newest sample last."""
        return self._series[name]

    def seconds(self, kind: Kind) -> list[float | None]:
        """Return the average seconds of each sample, None where no time is known."""
        return [None if value == NOT_KNOWN else round(value, 4) for value in self._seconds[kind]]

    def rate(self, name: str) -> float:
        """Return the events a second within the last minute."""
        recent = self._series[name][-RATE_SAMPLES:]
        return sum(recent) / (len(recent) * SAMPLE_SECONDS) if recent else 0.0

    def trend(self) -> Trend:
        """Return what has changed within the samples."""
        total = {name: sum(self._series[name]) for name in EVENT_SERIES}
        return Trend(
            period=_period(len(self._series["waiting"])),
            waiting_before=self._series["waiting"][0],
            dead_lettered_before=self._series["dead"][0],
            arrived=total["sent"],
            left=total["completed"] + total["dead_lettered"] + total["removed"],
            delivered=total["delivered"],
        )


class Activity(Counters):
    """Passes all events on to the metrics, and keeps those of messages by queue."""

    def __init__(self, counters: Counters, clock: Clock) -> None:
        self._counters = counters
        self._latencies = Latencies(clock)
        self._events: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._by_queue: dict[int, QueueActivity] = {}
        self._viewers: set[Signal] = set()
        self.snapshot = MetricsSnapshot(None, "none")
        self.queues: Sequence[QueueWithCounts] = ()
        """The queues as the store has last answered."""
        self.number: int = 0
        """The number of samples so far."""
        self.is_closed = False

    def count(self, event: str, amount: int = 1) -> None:
        """See `Counters`."""
        self._counters.count(event, amount)

    def count_messages(self, queue_id: int, event: str, amount: int = 1) -> None:
        """See `Counters`."""
        self._counters.count_messages(queue_id, event, amount)
        if (series := SERIES_OF_EVENT.get(event)) is not None:
            self._events[queue_id][series] += amount

    def time_deliveries(self, messages: Sequence[Message]) -> None:
        """See `Counters`."""
        self._latencies.time_deliveries(messages)

    def time_settlements(self, settlements: Iterable[Settlement]) -> None:
        """See `Counters`."""
        self._latencies.time_settlements(settlements)

    def of(self, queue_id: int) -> QueueActivity:
        """Return the samples of a queue; one that has none yet is at rest."""
        activity = self._by_queue.get(queue_id)
        if activity is None:
            activity = QueueActivity()
            activity.add({}, 0, 0, {})
        return activity

    async def refresh(self, statistics: QueueStatistics) -> None:
        """Read the current numbers of messages, for a page that is loaded now."""
        self.snapshot = await statistics.snapshot()
        if self.snapshot.queues is not None:
            self.queues = self.snapshot.queues

    async def sample(self, statistics: QueueStatistics) -> float | None:
        """Add a sample of every queue, and wake the viewers. Without an answer of the store nothing is added."""
        await self.refresh(statistics)
        if self.snapshot.queues is not None and not self.snapshot.is_slow:
            events, self._events = self._events, defaultdict(Counter)
            kept = self.snapshot.queues[:MAX_QUEUES]
            self._by_queue = {listed.queue.id: self._with_sample(listed, events) for listed in kept}
            self._latencies.next_sample()
        self.number += 1
        self._wake_viewers()
        return SAMPLE_SECONDS

    def close(self) -> None:
        """End all views: the server is about to stop."""
        self.is_closed = True
        self._wake_viewers()

    @contextmanager
    def viewer(self, clock: Clock) -> Generator[Signal]:
        """Return a signal that fires with each sample, and at the end."""
        signal = Signal(clock)
        self._viewers.add(signal)
        try:
            yield signal
        finally:
            self._viewers.discard(signal)

    @property
    def viewers(self) -> int:
        """How many views are open."""
        return len(self._viewers)

    def _with_sample(self, listed: QueueWithCounts, events: dict[int, Counter[str]]) -> QueueActivity:
        activity = self._by_queue.get(listed.queue.id) or QueueActivity()
        waiting = listed.counts.available + listed.counts.blocked
        seconds = self._latencies.averages(listed.queue.id)
        activity.add(events.get(listed.queue.id, {}), waiting, listed.counts.dead_lettered, seconds)
        return activity

    def _wake_viewers(self) -> None:
        for signal in self._viewers:
            signal.fire()


def _period(samples: int) -> Duration:
    return from_seconds(samples * SAMPLE_SECONDS)
