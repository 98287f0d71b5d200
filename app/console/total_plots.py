"""The plots of the overview: what has happened in all queues that a visitor may browse, and one sentence about it.

The sentence, the legends and the lines come from the same points.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import add

from app.broker.administration.queues import QueueWithCounts
from app.console.activity import MAX_QUEUES, Activity
from app.console.charts import line_path
from app.console.formats import format_duration, format_number, format_rate, format_time
from app.console.spans import SPANS, Span
from app.domain.access import Grant, Right
from app.domain.instant import from_seconds
from app.domain.plurals import count_of
from app.wire.times import to_wire

MAX_CACHED = 64
"""Plots that are kept until the next sample, one for each span and each grant of the visitors."""

EVENT_LINES = (("sent", "In"), ("completed", "Out"), ("failed", "Failed"))
FIRST_ONLY = f"The plots have the first {MAX_QUEUES:,} queues by name."
ALONE = "Some points have the events of this server alone, because it worked without Redis."
NO_SAMPLE = "The plots begin with the next sample, in a few seconds."


@dataclass(frozen=True, slots=True)
class PlottedLine:
    """One line of a plot: its shape, and its amount as the legend has it."""

    name: str
    label: str
    amount: str
    path: str


@dataclass(frozen=True, slots=True)
class TotalPlots:
    """Both plots over one span: the events per second, and the messages that wait."""

    span: str
    sentence: str
    note: str
    begin: str
    begin_text: str
    end: str
    end_text: str
    highest_rate: str
    highest_waiting: str
    lines: Sequence[PlottedLine]
    waiting: PlottedLine


class PlotsOfAll:
    """Makes the plots, once for each sample and all visitors with the same grant."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._queues = activity.queues
        self._number: int = -1
        self._cache: dict[tuple[Grant, str], TotalPlots] = {}

    def plots(self, grant: Grant, span: Span) -> TotalPlots:
        """Return the plots of the queues that this grant lets a visitor browse."""
        queues, number = self._activity.queues, self._activity.number
        if queues is not self._queues or number != self._number or len(self._cache) >= MAX_CACHED:
            self._queues, self._number = queues, number
            self._cache = {}
        key = (grant, span.name)
        if key not in self._cache:
            kept = [listed for listed in queues[:MAX_QUEUES] if grant.allows(Right.BROWSE, listed.queue.name)]
            self._cache[key] = _plots(self._activity, kept, span, len(queues) > MAX_QUEUES)
        return self._cache[key]


def _plots(activity: Activity, queues: Sequence[QueueWithCounts], span: Span, is_partial: bool) -> TotalPlots:
    times = list(activity.times.of(span))
    end = times[-1] if times else 0.0
    begin = end - span.points * span.point_seconds
    series = {
        name: _sum(activity, queues, span, name, len(times)) for name in ("sent", "completed", "failed", "waiting")
    }
    waiting_now = sum(listed.counts.available + listed.counts.blocked for listed in queues)
    # The newest numbers may be those of a page that is loaded between two samples.
    series["waiting"][-1:] = [waiting_now] if times else []
    seconds = [span.point_seconds] * len(times)
    if times:
        seconds[-1] = span.point_seconds * activity.times.samples_of_newest(span) / span.samples
    rates = {
        name: [count / length for count, length in zip(series[name], seconds, strict=True)] for name, _ in EVENT_LINES
    }
    highest_rate = max((rate for values in rates.values() for rate in values), default=0.0)
    highest_waiting = max(series["waiting"], default=0)
    lines = [
        PlottedLine(
            name,
            label,
            format_number(sum(series[name])),
            line_path(times, rates[name], begin, end, highest_rate or 1),
        )
        for name, label in EVENT_LINES
    ]
    waiting_path = line_path(times, series["waiting"], begin, end, highest_waiting or 1)
    waiting = PlottedLine("waiting", "Waiting", format_number(waiting_now), waiting_path)
    begin_at, end_at = from_seconds(begin), from_seconds(end)
    return TotalPlots(
        span.name,
        _sentence(lines, waiting_now, span, sum(seconds), len(times)),
        _note(activity, span, is_partial),
        to_wire(begin_at) if times else "",
        format_time(begin_at) if times else "",
        to_wire(end_at) if times else "",
        format_time(end_at) if times else "",
        format_rate(highest_rate),
        format_number(highest_waiting),
        lines,
        waiting,
    )


def _sum(activity: Activity, queues: Iterable[QueueWithCounts], span: Span, name: str, size: int) -> list[int]:
    """Return the sums of the points of these queues. A queue that is newer than a point has none of it."""
    total = [0] * size
    for listed in queues:
        points = activity.of(listed.queue.id).points(span, name)
        start = size - len(points)
        if start >= 0 and any(points):
            total[start:] = map(add, total[start:], points)
    return total


def _sentence(lines: Sequence[PlottedLine], waiting: int, span: Span, covered: float, points: int) -> str:
    waits = count_of(waiting, "waits now", "wait now")
    if not points:
        return f"{NO_SAMPLE} {waits}."
    entered, left, failed = (line.amount for line in lines)
    if points == span.points:
        period = f"the last {span.label}"
    else:
        period = f"the last {format_duration(from_seconds(covered))}, since this server process started"
    return f"In {period}: {entered} in, {left} out, {failed} failed. {waits}."


def _note(activity: Activity, span: Span, is_partial: bool) -> str:
    is_alone = activity.is_alone(span.samples * span.points)
    return " ".join([FIRST_ONLY] * is_partial + [ALONE] * is_alone)


SPAN_LABELS = tuple((span.name, span.label if span.label[0].isdigit() else f"1 {span.label}") for span in SPANS)
"""The spans that a page offers."""
