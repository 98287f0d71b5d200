"""The metrics of a server in the text format of Prometheus.

The processes of one server share their counters and histograms. Values of the store, such as the depth of a queue, are
read for each answer.
"""

import os
from bisect import bisect_left
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from pathlib import Path
from time import perf_counter

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from app.broker.administration.queues import QueueWithCounts
from app.broker.ports.notifier import Counters
from app.domain.instant import to_seconds
from app.http.message_counters import (
    MESSAGE_EVENTS,
    QUEUE_MESSAGE_EVENTS,
    MessageCounters,
    events_by_queue,
    events_in_total,
)
from app.runtime.shared_numbers import DIRECTORY_VARIABLE, Labels, SharedNumbers

WAITING = "peeklock_waiting_receivers"
REQUESTS = "peeklock_request_seconds"
EVENTS = "peeklock_events"
BATCHES = "peeklock_batch_entries"
PASSES = "peeklock_passes"

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""The ends of the buckets. A series has the count of each, the count of what is larger, and the sum."""

STATES = ("available", "scheduled", "locked", "deferred", "dead_lettered", "blocked", "uncommitted")
MAX_NAMED_QUEUES = 1000
"""Queues with their own series, the first by name. Totals include all queues."""

LOCK_STORE_STATES = ("ok", "degraded", "none")


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The state of the message store and the lock store.

    `queues` is None while the store is unavailable. While the store is slow, `queues` has the last known values.
    With `per_queue`, each queue has its own series.
    """

    queues: Sequence[QueueWithCounts] | None
    lock_store: str
    is_slow: bool = False
    per_queue: bool = True


class Metrics(Counters):
    """The metrics of one process."""

    def __init__(self) -> None:
        directory = os.environ.get(DIRECTORY_VARIABLE)
        self._numbers = SharedNumbers(Path(directory) if directory else None)
        self._waiting = self._numbers.of(WAITING)  # the first: nothing waits in a process that has ended
        self._messages = MessageCounters(self._numbers)

    def observe(self, operation: str, outcome: str, started_at: float) -> None:
        """Record an answered request that started at this time of `perf_counter`. `outcome` is `ok`, or the code of the problem."""
        seconds = perf_counter() - started_at
        numbers = self._numbers.of(REQUESTS, (operation, outcome), len(LATENCY_BUCKETS) + 2)
        numbers[bisect_left(LATENCY_BUCKETS, seconds)] += 1
        numbers[-1] += seconds

    def count(self, event: str, amount: int = 1) -> None:
        """Add `amount` to the count of an event (see `Counters`)."""
        if amount:
            self._numbers.of(EVENTS, (event,))[0] += amount

    def count_messages(self, queue_id: int, event: str, amount: int = 1) -> None:
        """Add `amount` to the number of messages of a queue to which this has happened (see `Counters`)."""
        if amount:
            self._messages.count(queue_id, event, amount)

    def free_deleted_queues(self, snapshot: MetricsSnapshot) -> None:
        """Let other queues be counted instead of those that do not exist any more."""
        if snapshot.queues and not snapshot.is_slow:
            existing = {one.queue.id for one in snapshot.queues}
            self._messages.free_deleted(existing, max(existing))

    def record_batch(self, statement: str, entries: int) -> None:
        """Record a statement that served `entries` requests."""
        numbers = self._numbers.of(BATCHES, (statement,), len(BATCH_SIZE_BUCKETS) + 2)
        numbers[bisect_left(BATCH_SIZE_BUCKETS, entries)] += 1
        numbers[-1] += entries

    def record_pass(self, name: str, outcome: str) -> None:
        """Record a background pass that ended `ok` or `failed`."""
        self._numbers.of(PASSES, (name, outcome))[0] += 1

    @contextmanager
    def waiting_receiver(self) -> Generator[None]:
        """Count a receive that waits for a message until the end of the block."""
        self._waiting[0] += 1
        try:
            yield
        finally:
            self._waiting[0] -= 1

    def render(self, snapshot: MetricsSnapshot) -> bytes:
        """Return the metrics of all processes of this server in the text format of Prometheus."""
        answered = CollectorRegistry()
        answered.register(_CountsCollector(self._numbers, snapshot))
        answered.register(_SnapshotCollector(snapshot))
        return generate_latest(answered)


class _CountsCollector:
    """A collector of what the processes have counted. Queues have names, if the snapshot has names."""

    def __init__(self, numbers: SharedNumbers, snapshot: MetricsSnapshot) -> None:
        self._series = numbers.read()
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        """Yield the counters, the histograms and the gauge, as `prometheus_client` expects."""
        yield self._histogram(
            REQUESTS, "Time to answer a request, waiting included.", ("operation", "outcome"), LATENCY_BUCKETS
        )
        events = "Events that no caller sees in an answer, or that are worth adding up."
        yield _counter(EVENTS, events, ("event",), self._counts(EVENTS))
        yield self._histogram(BATCHES, "Callers that shared one statement.", ("statement",), BATCH_SIZE_BUCKETS)
        yield _counter(MESSAGE_EVENTS, "Events of messages in all queues.", ("event",), events_in_total(self._series))
        passes = "Background passes that ended, ok or failed."
        yield _counter(PASSES, passes, ("name", "outcome"), self._counts(PASSES))
        yield GaugeMetricFamily(WAITING, "Receives that wait for a message.", self._sums(WAITING)[()][0])
        if names := self._names():
            by_queue = events_by_queue(self._series, names)
            yield _counter(QUEUE_MESSAGE_EVENTS, "Events of messages in one queue.", ("queue", "event"), by_queue)

    def _counts(self, name: str) -> Mapping[Labels, float]:
        return {values: numbers[0] for values, numbers in self._sums(name).items()}

    def _histogram(self, name: str, documentation: str, labels: Labels, ends: Sequence[float]) -> Metric:
        family = HistogramMetricFamily(name, documentation, labels=labels)
        for values, (*counts, total) in self._sums(name).items():
            names = (*(str(float(end)) for end in ends), "+Inf")
            family.add_metric(values, [*zip(names, accumulate(counts), strict=True)], total)
        return family

    def _sums(self, name: str) -> Mapping[Labels, Sequence[float]]:
        """Return the sums of all processes by labels."""
        sums: dict[Labels, Sequence[float]] = {}
        for series in self._series:
            if series.name == name:
                known = sums.get(series.labels)
                sums[series.labels] = [*series.numbers] if known is None else [*map(add, known, series.numbers)]
        return sums

    def _names(self) -> dict[int, str]:
        if not self._snapshot.per_queue:
            return {}
        return {one.queue.id: one.queue.name for one in (self._snapshot.queues or ())[:MAX_NAMED_QUEUES]}


def _counter(name: str, documentation: str, labels: Labels, counts: Mapping[Labels, float]) -> Metric:
    """Return a counter with a series for each count that is not 0."""
    family = CounterMetricFamily(name, documentation, labels=labels)
    for values, count in counts.items():
        if count:
            family.add_metric(values, count)
    return family


class _SnapshotCollector:
    """A collector of the snapshot."""

    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges, as `prometheus_client` expects."""
        queues = self._snapshot.queues
        yield GaugeMetricFamily(
            "peeklock_store_up", "0 while the message store cannot be reached, or has not answered yet.",
            float(queues is not None),
        )  # fmt: skip
        yield GaugeMetricFamily(
            "peeklock_store_slow",
            "1 while the store takes longer than a second. The figures of queues are then the last known ones.",
            float(self._snapshot.is_slow),
        )
        yield self._lock_store()
        if queues is None:
            return
        yield GaugeMetricFamily("peeklock_queues", "Queues.", len(queues))
        yield self._total_messages(queues)
        yield GaugeMetricFamily(
            "peeklock_oldest_seconds", "How long the oldest available message of all queues has waited.",
            max((_oldest_seconds(listed) for listed in queues), default=0.0),
        )  # fmt: skip
        if self._snapshot.per_queue:
            yield self._messages_by_queue(queues[:MAX_NAMED_QUEUES])
            yield self._oldest_by_queue(queues[:MAX_NAMED_QUEUES])

    def _total_messages(self, queues: Sequence[QueueWithCounts]) -> Metric:
        family = GaugeMetricFamily("peeklock_messages", "Messages of all queues, by state.", labels=("state",))
        for state in STATES:
            family.add_metric((state,), sum(getattr(listed.counts, state) for listed in queues))
        return family

    def _lock_store(self) -> Metric:
        family = GaugeMetricFamily(
            "peeklock_lock_store",
            "1 for the state of the lock store: ok, degraded, or none without Redis.",
            labels=("state",),
        )
        for state in LOCK_STORE_STATES:
            family.add_metric((state,), float(state == self._snapshot.lock_store))
        return family

    def _messages_by_queue(self, queues: Sequence[QueueWithCounts]) -> Metric:
        family = GaugeMetricFamily(
            "peeklock_queue_messages", "Messages of one queue, by state.", labels=("queue", "state")
        )
        for listed in queues:
            for state in STATES:
                family.add_metric((listed.queue.name, state), getattr(listed.counts, state))
        return family

    def _oldest_by_queue(self, queues: Sequence[QueueWithCounts]) -> Metric:
        family = GaugeMetricFamily(
            "peeklock_queue_oldest_seconds",
            "How long the oldest available message of one queue has waited.",
            labels=("queue",),
        )
        for listed in queues:
            family.add_metric((listed.queue.name,), _oldest_seconds(listed))
        return family


def _oldest_seconds(listed: QueueWithCounts) -> float:
    return to_seconds(listed.counts.oldest_available or 0)
