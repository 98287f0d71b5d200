"""The metrics of a server in the text format of Prometheus.

The processes of one server share counters and histograms through the directory in `PROMETHEUS_MULTIPROC_DIR`, which is
set before this module is imported. Values of the store, such as the depth of a queue, are read for each answer.
"""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from app.broker.administration.queues import QueueWithCounts
from app.broker.ports.notifier import Counters
from app.domain.instant import to_seconds
from app.http.message_counters import MessageCounters, with_names

MULTIPROC_DIR = "PROMETHEUS_MULTIPROC_DIR"
LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
STATES = ("available", "scheduled", "locked", "deferred", "dead_lettered", "blocked", "uncommitted")
MAX_NAMED_QUEUES = 1000
"""Queues with their own series, the first by name. Totals include all queues."""

disable_created_metrics()  # series of when a series began

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


class OperationMetrics:
    """The count and duration of one operation's requests by outcome: `ok`, or the code of the problem."""

    def __init__(self, seconds: Histogram, operation: str) -> None:
        self._seconds = seconds
        self._operation = operation
        self._by_outcome: dict[str, Histogram] = {}

    def observe(self, outcome: str, started_at: float) -> None:
        """Record an answered request."""
        seconds = self._by_outcome.get(outcome)
        if seconds is None:
            seconds = self._by_outcome[outcome] = self._seconds.labels(self._operation, outcome)
        seconds.observe(time.perf_counter() - started_at)


class Metrics(Counters):
    """The metrics of one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "peeklock_request_seconds", "Time to answer a request, waiting included.",
            ("operation", "outcome"), buckets=LATENCY_BUCKETS, registry=self._registry,
        )  # fmt: skip
        self._events = Counter(
            "peeklock_events", "Events that no caller sees in an answer, or that are worth adding up.", ("event",),
            registry=self._registry,
        )  # fmt: skip
        self._batches = Histogram(
            "peeklock_batch_entries", "Callers that shared one statement.", ("statement",),
            buckets=BATCH_SIZE_BUCKETS, registry=self._registry,
        )  # fmt: skip
        self._by_statement: dict[str, Histogram] = {}
        self._messages = MessageCounters(self._registry)
        self._passes = Counter(
            "peeklock_passes",
            "Background passes that ended, ok or failed.",
            ("name", "outcome"),
            registry=self._registry,
        )
        self.waiting_receivers = Gauge(
            "peeklock_waiting_receivers", "Receives that wait for a message.",
            registry=self._registry, multiprocess_mode="livesum",
        )  # fmt: skip

    def for_operation(self, operation: str) -> OperationMetrics:
        """Return the metrics of one operation."""
        return OperationMetrics(self._seconds, operation)

    @staticmethod
    def now() -> float:
        """Return the start time to pass to `OperationMetrics.observe`."""
        return time.perf_counter()

    def count(self, event: str, amount: int = 1) -> None:
        """Add `amount` to the count of an event (see `Counters`)."""
        if amount:
            self._events.labels(event).inc(amount)

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
        batches = self._by_statement.get(statement)
        if batches is None:
            batches = self._by_statement[statement] = self._batches.labels(statement)
        batches.observe(entries)

    def record_pass(self, name: str, outcome: str) -> None:
        """Record a background pass that ended `ok` or `failed`."""
        self._passes.labels(name, outcome).inc()

    def render(self, snapshot: MetricsSnapshot) -> bytes:
        """Return the metrics of all processes of this server in the text format of Prometheus."""
        shared = CollectorRegistry()
        if MULTIPROC_DIR in os.environ:
            MultiProcessCollector(shared)
        else:
            shared = self._registry
        answered = CollectorRegistry()
        answered.register(_NamedQueues(shared, snapshot))
        answered.register(_SnapshotCollector(snapshot))
        return generate_latest(answered)


class _NamedQueues:
    """The metrics of the processes. Queues have names instead of ids, if the snapshot has names."""

    def __init__(self, counted: CollectorRegistry, snapshot: MetricsSnapshot) -> None:
        self._counted = counted
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        """Yield what was counted, as `prometheus_client` expects."""
        return with_names(self._counted.collect(), self._names())

    def _names(self) -> dict[int, str]:
        if not self._snapshot.per_queue:
            return {}
        return {one.queue.id: one.queue.name for one in (self._snapshot.queues or ())[:MAX_NAMED_QUEUES]}


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
