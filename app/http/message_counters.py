"""The counters of what happened to messages: in total, and for each queue that exists, in a bounded number of series.

The series of a queue are kept in a slot, which the next queue gets after a deletion. A file of a process that shares its
metrics cannot remove a series, so it has series of slots, and one that says which queue has the slot.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, Metric

MAX_COUNTED_QUEUES = 2000
"""Queues with their own counters in a process: the first that it serves. Messages of other queues count in totals only."""

MESSAGE_EVENTS = "peeklock_queue_message_events"
"""The counter that processes keep, by slot. Answers have its series by the name of the queue."""

SLOTS = "peeklock_queue_slots"
"""The id of the queue that has each slot, 0 if none has it. No answer has this counter."""

DOCUMENTATION = "Events of messages in one queue."


class MessageCounters:
    """The counters of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._totals = Counter(
            "peeklock_message_events", "Events of messages in all queues.", ("event",), registry=registry
        )
        self._events = Counter(MESSAGE_EVENTS, DOCUMENTATION, ("slot", "event"), registry=registry)
        self._slots = Counter(SLOTS, "The queue of each slot.", ("slot",), registry=registry)
        self._process = uuid4().hex
        self._total_by_event: dict[str, Counter] = {}
        self._series: dict[tuple[int, str], Counter] = {}
        self._slot_of: dict[int, str] = {}
        self._free: list[str] = []
        self._used: defaultdict[str, dict[str, Counter]] = defaultdict(dict)

    def count(self, queue_id: int, event: str, amount: int) -> None:
        """Add to the number of messages of a queue to which this has happened."""
        total = self._total_by_event.get(event)
        if total is None:
            total = self._total_by_event[event] = self._totals.labels(event)
        total.inc(amount)
        series = self._series.get((queue_id, event)) or self._new_series(queue_id, event)
        if series is not None:
            series.inc(amount)

    def free_deleted(self, existing: Container[int], newest: int) -> None:
        """Free the slots of queues that do not exist. A queue with a higher id than `newest` may have been created since."""
        for queue_id in [one for one in self._slot_of if one < newest and one not in existing]:
            slot = self._slot_of.pop(queue_id)
            for event, series in self._used[slot].items():
                self._series.pop((queue_id, event), None)
                series.reset()
            self._slots.labels(slot).reset()
            self._free.append(slot)

    def _new_series(self, queue_id: int, event: str) -> Counter | None:
        slot = self._slot_of.get(queue_id) or self._take_slot(queue_id)
        if slot is None:
            return None
        series = self._used[slot][event] = self._series[queue_id, event] = self._events.labels(slot, event)
        return series

    def _take_slot(self, queue_id: int) -> str | None:
        if len(self._slot_of) >= MAX_COUNTED_QUEUES:
            return None
        slot = self._slot_of[queue_id] = self._free.pop() if self._free else f"{self._process}.{len(self._slot_of)}"
        self._slots.labels(slot).inc(queue_id)
        return slot


def with_names(metrics: Iterable[Metric], names: Mapping[int, str]) -> Iterable[Metric]:
    """Yield the metrics, with the names of queues instead of slots. Series of queues without a name are left out."""
    kept = {metric.name: metric for metric in metrics}
    # The files of several processes have no metric without a sample.
    slots, events = (metric.samples if (metric := kept.pop(name, None)) else [] for name in (SLOTS, MESSAGE_EVENTS))
    yield from kept.values()
    queue_of = {sample.labels["slot"]: int(sample.value) for sample in slots}
    counts: defaultdict[tuple[str, str], float] = defaultdict(float)
    for sample in events:
        name = names.get(queue_of.get(sample.labels["slot"], 0))
        if name is not None:
            counts[name, sample.labels["event"]] += sample.value
    named = CounterMetricFamily(MESSAGE_EVENTS, DOCUMENTATION, labels=("queue", "event"))
    for labels, value in sorted(counts.items()):
        named.add_metric(labels, value)
    if names:
        yield named
