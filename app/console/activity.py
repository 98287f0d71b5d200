"""What has happened in queues within the last 15 minutes, and in longer points within 24 hours, kept in memory.

Each process counts the events of the requests that it served itself, and gets the sums of all servers from the server
directory. The numbers of messages are those of the store.
"""

from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from app.broker.administration.queues import QueueWithCounts
from app.broker.ports.notifier import Counters
from app.broker.ports.server_directory import MAX_WINDOWS, WINDOW_SECONDS, Counts, ListedServer, Server, ServerDirectory
from app.console.latency import KINDS, NOT_KNOWN, Kind, Latencies, averages
from app.console.spans import LARGEST, LONGER, SHORTEST, Span, SpanPoints, SpanTimes
from app.domain.attention import Trend
from app.domain.instant import Duration, Instant, from_seconds, to_seconds
from app.domain.message import Message
from app.domain.queue import Queue
from app.domain.settlement import Settlement
from app.http.metrics import MetricsSnapshot
from app.http.queue_statistics import QueueStatistics
from app.runtime.clock import Clock, Signal

SAMPLE_SECONDS = WINDOW_SECONDS
SAMPLES = SHORTEST.points
"""A sample each 5 seconds for 15 minutes."""

RATE_SAMPLES = 12
"""Rates are those of the last minute."""

MAX_QUEUES = 1000
"""Queues whose samples are kept, the first by name: 180 samples of 10 numbers, and 3 spans of 120 points of 4 numbers. That
is 13 kB for each queue."""

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
    """The samples of one queue, the newest last. One that `begins_empty` did not exist before the first of them."""

    __slots__ = ("_begins_empty", "_points", "_seconds", "_series")

    def __init__(self, *, begins_empty: bool = False) -> None:
        self._begins_empty = begins_empty
        self._series = {name: array("I") for name in SERIES}
        self._points = {span: SpanPoints(span) for span in LONGER}
        self._seconds: dict[Kind, array[float]] = {kind: array("f") for kind in KINDS}

    def add(
        self,
        events: Mapping[str, int],
        waiting: int,
        dead: int,
        seconds: Mapping[Kind, float],
        span_times: SpanTimes | None = None,
    ) -> None:
        """Add a sample, and drop what is older than 15 minutes. `seconds` has the average times that are known.

        `span_times` says in which longer spans the sample begins a point; without it, they get none.
        """
        sample = {**events, "waiting": waiting, "dead": dead}
        if span_times is not None:
            for span, points in self._points.items():
                points.add(sample, span_times.begins_point(span))
        for name, series in self._series.items():
            series.append(min(sample.get(name, 0), LARGEST))
        for kind, times in self._seconds.items():
            times.append(seconds.get(kind, NOT_KNOWN))
        if len(self._series["waiting"]) > SAMPLES:
            for kept in (*self._series.values(), *self._seconds.values()):
                del kept[0]
            self._begins_empty = False

    def series(self, name: str) -> Sequence[int]:
        """Return a series, the newest sample last."""
        return self._series[name]

    def points(self, span: Span, name: str) -> Sequence[int]:
        """Return the points of a series within a span, the newest last."""
        return self._series[name] if span is SHORTEST else self._points[span].series(name)

    def seconds(self, kind: Kind) -> list[float | None]:
        """Return the average seconds of each sample, None where no time is known."""
        return [None if value == NOT_KNOWN else round(value, 4) for value in self._seconds[kind]]

    def rate(self, name: str) -> float:
        """Return the events per second within the last minute."""
        recent = self._series[name][-RATE_SAMPLES:]
        return sum(recent) / (len(recent) * SAMPLE_SECONDS) if recent else 0.0

    def trend(self) -> Trend:
        """Return what has changed within the samples."""
        total = {name: sum(self._series[name]) for name in EVENT_SERIES}
        return Trend(
            period=_period(len(self._series["waiting"])),
            waiting_before=0 if self._begins_empty else self._series["waiting"][0],
            dead_lettered_before=0 if self._begins_empty else self._series["dead"][0],
            arrived=total["sent"],
            left=total["completed"] + total["dead_lettered"] + total["removed"],
            delivered=total["delivered"],
        )


class Activity(Counters):
    """Passes all events on to the metrics, and keeps those of messages by queue."""

    def __init__(self, counters: Counters, clock: Clock, server: Server) -> None:
        self._counters = counters
        self.server = server
        self._latencies = Latencies(clock)
        self._clock = clock
        self._events: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._windows: deque[tuple[Counts, bool]] = deque(maxlen=MAX_WINDOWS)
        """The counts of windows that no sample has yet, and whether they are those of this server alone."""
        self._by_queue: dict[int, QueueActivity] = {}
        self.times = SpanTimes()
        """When the points of each span end."""
        self._samples_of_all: int = max(span.samples * span.points for span in LONGER)
        """The newest samples that have the sums of all servers, up to the first that has not."""
        self._viewers: dict[Signal, str | None] = {}
        """The signals of open views, and who looks at each, if a principal is known."""
        self.servers: Sequence[ListedServer] | None = ()
        """The servers that run; None while that cannot be known, and counts are those of this server alone."""
        self.snapshot = MetricsSnapshot(None, "none")
        self.queues: Sequence[QueueWithCounts] = ()
        """The queues as the store has last answered."""
        self.read_at: Instant | None = None
        """When that was, None before the first answer."""
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
            if not self.snapshot.is_slow:
                self.read_at = self._clock.now()

    async def report(self, directory: ServerDirectory) -> float:
        """Hand over what has happened here, and read what has happened at all servers. Return the seconds to the next report."""
        counts = self._take_counts()
        reports = await directory.report(self.server, counts)
        if reports is None:
            self.servers = None
            self._windows.append((counts, True))
            return SAMPLE_SECONDS
        self.servers = reports.servers
        self._windows.extend((window, False) for window in reports.windows)
        return reports.next_seconds

    async def leave(self, directory: ServerDirectory) -> None:
        """Hand over the last events. This server is listed no longer."""
        await directory.leave(self.server, self._take_counts())

    async def sample(self, statistics: QueueStatistics, directory: ServerDirectory) -> float:
        """Add a sample of every queue for each window that has ended, and wake the viewers.

        While the store does not answer, the newest windows are kept, and nothing is added. Return the seconds to the next
        sample.
        """
        seconds = await self.report(directory)
        await self.refresh(statistics)
        if self.snapshot.queues is not None and not self.snapshot.is_slow:
            now = to_seconds(self._clock.now())
            while self._windows:
                counts, is_alone = self._windows.popleft()
                self._add_samples(self.snapshot.queues[:MAX_QUEUES], counts, is_alone)
                self.times.add(now - len(self._windows) * SAMPLE_SECONDS)
        self.number += 1
        self._wake_viewers()
        return seconds

    def is_alone(self, samples: int = SAMPLES) -> bool:
        """Return whether the newest samples, or some of them, have the events of this server alone."""
        return self.servers is None or self._samples_of_all < samples

    def close(self) -> None:
        """End all views: the server is about to stop."""
        self.is_closed = True
        self._wake_viewers()

    @contextmanager
    def viewer(self, clock: Clock, principal: str | None = None) -> Generator[Signal]:
        """Return a signal that fires with each sample, and at the end."""
        signal = Signal(clock)
        self._viewers[signal] = principal
        try:
            yield signal
        finally:
            del self._viewers[signal]

    @property
    def viewers(self) -> int:
        """How many views are open."""
        return len(self._viewers)

    def viewers_of(self, principal: str) -> int:
        """Return how many of them a principal has."""
        return sum(viewer == principal for viewer in self._viewers.values())

    def _take_counts(self) -> Counts:
        """Return what has happened here since the last call: if in more queues than are kept, then in those alone."""
        counts, self._events = self._events, defaultdict(Counter)
        for queue_id, times in self._latencies.take().items():
            counts[queue_id].update(times)
        if len(counts) > MAX_QUEUES and self.queues:
            kept = (listed.queue.id for listed in self.queues[:MAX_QUEUES])
            return {queue_id: counts[queue_id] for queue_id in kept if queue_id in counts}
        return counts

    def _add_samples(self, kept: Sequence[QueueWithCounts], counts: Counts, is_alone: bool) -> None:
        self._by_queue = {listed.queue.id: self._with_sample(listed, counts) for listed in kept}
        self._samples_of_all = 0 if is_alone else self._samples_of_all + 1

    def _with_sample(self, listed: QueueWithCounts, counts: Counts) -> QueueActivity:
        activity = self._by_queue.get(listed.queue.id) or QueueActivity(begins_empty=self._is_new(listed.queue))
        waiting = listed.counts.available + listed.counts.blocked
        of_queue = counts.get(listed.queue.id, {})
        activity.add(of_queue, waiting, listed.counts.dead_lettered, averages(of_queue), self.times)
        return activity

    def _is_new(self, queue: Queue) -> bool:
        """Return whether a queue was created while this server ran, within the time of the samples that are kept."""
        return queue.created_at >= max(self.server.started_at, self._clock.now() - _period(SAMPLES))

    def _wake_viewers(self) -> None:
        for signal in self._viewers:
            signal.fire()


def _period(samples: int) -> Duration:
    return from_seconds(samples * SAMPLE_SECONDS)
