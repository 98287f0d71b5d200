"""The figures of a view: their curves, and a sentence about each."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from peeklock_pipeline.page import formatting
from peeklock_pipeline.page.changes import ENDS
from peeklock_pipeline.page.plots import FIRST, FORMATTERS, SECOND, THIRD, Curve, Plot, draw, one_line
from peeklock_pipeline.page.scales import ValueKind
from peeklock_pipeline.page.summary import Interval, Summary, View

SMALL_SIZE = (360, 220)
LOW_SIZE = (360, 150)
WIDE_SIZE = (1120, 270)

PERCENTILES = (("p50", FIRST), ("p95", SECOND), ("p99", THIRD))


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with its title, a sentence about it, and its drawings; its numbers are a column of the view's table."""

    title: str
    unit: str
    words: str
    plot: Plot
    drawing: Markup
    wide_drawing: Markup | None

    @property
    def label(self) -> str:
        """The figure in words, for readers who do not see it."""
        axis = "" if self.plot.is_empty else f", {self.plot.scale.name}"
        return f"{self.title}, {self.unit}{axis}. {self.words}"


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of all figures of a view as a table: a row for each interval in which something happened."""

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


class Figures:
    """The figures of one view."""

    def __init__(self, summary: Summary, view: View) -> None:
        self._summary = summary
        self._view = view
        self._intervals = summary.timeline(view)
        self._each = formatting.width(summary.width)

    def all(self) -> list[Figure]:
        """Return the figures of all messages, a queue, a group or a reason, in the order of the page."""
        match self._view.key.kind:
            case "reason":
                return [self.dead_letters()]
            case "group":
                return [self.completions(), self.end_to_end(), self.redeliveries()]
            case _:
                return [
                    self.throughput(), self.end_to_end(), self.waiting(), self.processing(), self.redeliveries(),
                    self.deliveries(), self.lock_losses(),
                ]  # fmt: skip

    def throughput(self) -> Figure:
        """Plot how many messages were sent, and how many ended."""
        curves = [Curve("sent", self._counts("sent"), FIRST), Curve("ended", self._counts(*ENDS), SECOND)]
        sentence = self._peak("Most were sent", "sent")
        return self._figure(
            "Throughput", f"messages per {self._each}", sentence, self._plot(curves, "count"), wide=True
        )

    def completions(self) -> Figure:
        """Plot how many messages were completed."""
        curves = [Curve("completed", self._counts("completed", "received"), FIRST)]
        sentence = self._peak("Most were completed", "completed", "received")
        return self._figure("Completed", f"messages per {self._each}", sentence, self._plot(curves, "count"), wide=True)

    def dead_letters(self) -> Figure:
        """Plot how many messages were dead-lettered."""
        curves = [Curve("dead-\nlettered", self._counts("dead_lettered"), FIRST)]
        sentence = self._peak("Most were dead-lettered", "dead_lettered")
        return self._figure(
            "Dead-lettered", f"messages per {self._each}", sentence, self._plot(curves, "count"), wide=True
        )

    def end_to_end(self) -> Figure:
        """Plot the time from sending to completion."""
        return self._latency("end_to_end", "End to end", "from sending to completion")

    def waiting(self) -> Figure:
        """Plot the time until the first delivery."""
        return self._latency("waiting", "Waiting", "from available to first delivery")

    def processing(self) -> Figure:
        """Plot the time of the last delivery."""
        return self._latency("processing", "Processing", "from last delivery to completion")

    def redeliveries(self) -> Figure:
        """Plot the share of messages that needed more than one delivery."""
        curve, total = Curve("delivered\nagain", self._values("redelivery_share")), self._view.totals
        sentence = (
            f"{formatting.count(total['redelivered'])} of {formatting.counted(total['delivered'], 'message')} "
            f"({formatting.share(total['redelivery_share'])}) were delivered more than once."
        )
        return self._figure("Redeliveries", "share of messages", sentence, self._plot([curve], "share"))

    def deliveries(self) -> Figure:
        """Plot the average number of deliveries of a message."""
        curve, total = Curve("average", self._values("deliveries_per_message")), self._view.totals
        sentence = (
            f"{formatting.count(total['deliveries'])} deliveries, {formatting.decimal(total['deliveries_per_message'])} "
            "for each message that was delivered."
        )
        return self._figure("Deliveries", "per message", sentence, self._plot([curve], "decimal"))

    def lock_losses(self) -> Figure:
        """Plot how many locks ran out: the proven number and the largest possible one."""
        curves = [
            Curve("at least", self._counts("lock_losses_at_least"), FIRST),
            Curve("at most", self._counts("lock_losses_at_most"), SECOND),
        ]
        low, high = (self._view.totals[f"lock_losses_{bound}"] for bound in ("at_least", "at_most"))
        sentence = f"{formatting.between(low, high)} locks ran out before their message was settled."
        if low != high:
            sentence += " Only a message's last failure is recorded, so the number lies between the two."
        return self._figure("Lock losses", f"per {self._each}", sentence, self._plot(curves, "count", band=True))

    def small(self) -> Markup:
        """Draw the throughput in a small size, for the plots of all queues side by side."""
        curves = [Curve("sent", self._counts("sent"), FIRST), Curve("ended", self._counts(*ENDS), SECOND)]
        return Markup(draw(self._plot(curves, "count"), *LOW_SIZE))  # our own names and numbers only

    def numbers(self, figures: Sequence[Figure]) -> Numbers:
        """Return the numbers of figures as a table."""
        curves = [(figure, curve) for figure in figures for curve in figure.plot.curves]
        columns = [f"{figure.title}: {one_line(curve.name)}" for figure, curve in curves]
        rows = [
            (
                formatting.moment_in(interval.at, self._summary.width),
                [FORMATTERS[figure.plot.kind](curve.values[place]) for figure, curve in curves],
            )
            for place, interval in enumerate(self._intervals)
            if interval.measures
        ]
        return Numbers(columns, rows)

    def _latency(self, time: str, title: str, unit: str) -> Figure:
        curves = [Curve(name, self._values(f"{time}_{name}"), series) for name, series in PERCENTILES]
        half, most, nearly = (self._view.totals[f"{time}_{name}"] for name, _ in PERCENTILES)
        sentence = (
            f"Overall half took at most {formatting.duration(half)}, 95 % at most {formatting.duration(most)} and "
            f"99 % at most {formatting.duration(nearly)}."
        )
        return self._figure(title, unit, sentence if half is not None else "", self._plot(curves, "duration"))

    def _plot(self, curves: Sequence[Curve], kind: ValueKind, *, band: bool = False) -> Plot:
        return Plot([interval.at for interval in self._intervals], curves, kind, band)

    def _figure(self, title: str, unit: str, sentence: str, plot: Plot, *, wide: bool = False) -> Figure:
        if plot.is_empty:
            return Figure(title, unit, "No message has a value for this yet.", plot, Markup(), None)
        drawing = Markup(draw(plot, *SMALL_SIZE))  # our own names and numbers only
        return Figure(title, unit, sentence, plot, drawing, Markup(draw(plot, *WIDE_SIZE)) if wide else None)

    def _values(self, name: str) -> list[float | None]:
        return [interval.measures[name] if interval.measures else None for interval in self._intervals]

    def _counts(self, *names: str) -> list[float | None]:
        return [_count(interval, *names) for interval in self._intervals]

    def _peak(self, start: str, *names: str) -> str:
        peak = max(self._intervals, key=lambda interval: _count(interval, *names), default=None)
        if peak is None or not (count := _count(peak, *names)):
            return ""
        at = formatting.moment_in(peak.at, self._summary.width)
        return f"{start} at {at}: {formatting.count(count)} per {self._each}."


def _count(interval: Interval, *names: str) -> int:
    return sum(interval.measures[name] for name in names) if interval.measures else 0
