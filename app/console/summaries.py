"""One row for each queue: what it holds, what happens in it and whether it needs attention. Made once for all viewers."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.broker.administration.queues import QueueWithCounts
from app.console.activity import SAMPLES, Activity
from app.console.consumers import PausedConsumers
from app.console.formats import format_duration, format_number, format_rate
from app.domain.attention import Attention, attention_of
from app.domain.consumer import ListedConsumer
from app.domain.instant import Duration

SPARK_POINTS = 30
"""Points of a sparkline: each is the sum of as many samples."""


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """One row of the overview."""

    name: str
    status: str
    available: int
    locked: int
    scheduled: int
    deferred: int
    blocked: int
    dead_lettered: int
    uncommitted: int
    oldest: Duration | None
    rate_in: float
    rate_out: float
    rate_failed: float
    spark: tuple[int, ...]
    attention: Attention | None

    @property
    def attention_cause(self) -> str:
        """Why the queue needs attention, empty if it does not."""
        return self.attention.cause.value if self.attention else ""


class Summaries:
    """The newest rows, by name. A row that has not changed stays the same object."""

    def __init__(self, activity: Activity, paused: PausedConsumers) -> None:
        self._activity = activity
        self._paused = paused
        self._queues = activity.queues
        self._number: int = -1
        self._rows: list[QueueSummary] = []
        self._cells: dict[str, list[str]] = {}

    def rows(self) -> list[QueueSummary]:
        """Return the rows of all queues."""
        queues, number = self._activity.queues, self._activity.number
        if queues is not self._queues or number != self._number:
            self._queues, self._number = queues, number
            self._rows = [summary(self._activity, listed, self._paused.of(listed.queue.id)) for listed in queues]
            self._cells = {row.name: self._shared_cells(row) for row in self._rows}
        return self._rows

    def cells(self, name: str) -> list[str]:
        """Return the texts of the row of a queue, as `row_cells` does."""
        return self._cells[name]

    def _shared_cells(self, row: QueueSummary) -> list[str]:
        """Return the texts of a row: those of the sample before, if they are the same."""
        cells, before = row_cells(row), self._cells.get(row.name)
        return cells if before != cells or before is None else before


def summary(activity: Activity, listed: QueueWithCounts, paused: Sequence[ListedConsumer]) -> QueueSummary:
    """Return the row of one queue with its consumers that are paused."""
    of_queue, counts = activity.of(listed.queue.id), listed.counts
    return QueueSummary(
        name=listed.queue.name,
        status=listed.queue.settings.status.value,
        available=counts.available,
        locked=counts.locked,
        scheduled=counts.scheduled,
        deferred=counts.deferred,
        blocked=counts.blocked,
        dead_lettered=counts.dead_lettered,
        uncommitted=counts.uncommitted,
        oldest=counts.oldest_available,
        rate_in=of_queue.rate("sent"),
        rate_out=of_queue.rate("completed"),
        rate_failed=of_queue.rate("failed"),
        spark=_spark(of_queue.series("sent")),
        attention=attention_of(listed.queue.settings.status, counts, of_queue.trend(), paused),
    )


def row_cells(row: QueueSummary) -> list[str]:
    """Return the texts of a row, in the order of the cells that a page marks as live."""
    return [
        row.attention_cause,
        row.attention.reason if row.attention else "",
        row.status,
        ",".join(map(str, row.spark)),
        format_rate(row.rate_in),
        format_rate(row.rate_out),
        format_rate(row.rate_failed),
        format_number(row.available),
        format_number(row.locked),
        format_number(row.scheduled),
        format_number(row.deferred),
        format_number(row.blocked),
        format_number(row.dead_lettered),
        format_duration(row.oldest),
    ]


def _spark(series: Sequence[int]) -> tuple[int, ...]:
    """Return the series in fewer points, the newest last, with zeros before its beginning."""
    step = SAMPLES // SPARK_POINTS
    padded = [0] * (SAMPLES - len(series)) + list(series)
    return tuple(sum(padded[start : start + step]) for start in range(0, SAMPLES, step))
