"""The figures of a report: their curves, and a sentence about each."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from peeklock_pipeline.page import formatting
from peeklock_pipeline.page.plots import FIRST, FORMATTERS, SECOND, THIRD, Curve, Plot, ValueKind, draw
from peeklock_pipeline.page.summary import Interval, Summary

SMALL_SIZE = (360, 210)
WIDE_SIZE = (1120, 260)

PERCENTILES = (("p50", FIRST), ("p95", SECOND), ("p99", THIRD))


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with its title, a sentence about it, its drawings, and its numbers as a table."""

    title: str
    unit: str
    words: str
    drawing: Markup
    wide_drawing: Markup | None
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


def throughput(summary: Summary) -> Figure:
    """Plot how many messages were sent, and how many ended."""
    intervals = summary.timeline()
    curves = [
        Curve(
            "ended",
            [
                _count(interval, "completed", "received", "dead_lettered", "expired", "purged", "cancelled")
                for interval in intervals
            ],
            SECOND,
        ),
        Curve("sent", [_count(interval, "sent") for interval in intervals], FIRST),
    ]
    plot = Plot("throughput", [interval.at for interval in intervals], curves[::-1], "count")
    each = formatting.width(summary.width)
    peak = _peak(intervals, "sent")
    sentence = (
        f"Most were sent at {formatting.moment_in(peak.at, summary.width)}: {formatting.count(_of(peak, 'sent'))} per {each}."
        if peak
        else ""
    )
    return _figure("Throughput", f"messages per {each}", sentence, plot, summary, wide=True)


def latency(summary: Summary, time: str, title: str, unit: str) -> Figure:
    """Plot the percentiles of a duration."""
    intervals = summary.timeline()
    curves = [
        Curve(name, [_of(interval, f"{time}_{name}") for interval in intervals], colour) for name, colour in PERCENTILES
    ]
    plot = Plot(time, [interval.at for interval in intervals], curves[::-1], "duration")
    half, most, nearly = (summary.totals[f"{time}_{name}"] for name, _ in PERCENTILES)
    sentence = (
        f"Overall half took at most {formatting.duration(half)}, 95 % at most {formatting.duration(most)} and "
        f"99 % at most {formatting.duration(nearly)}."
    )
    return _figure(title, unit, sentence if half is not None else "", plot, summary)


def redeliveries(summary: Summary) -> Figure:
    """Plot the share of messages that needed more than one delivery."""
    intervals = summary.timeline()
    curve = Curve("delivered\nagain", [_of(interval, "redelivery_share") for interval in intervals])
    total = summary.totals
    sentence = (
        f"{formatting.count(total['redelivered'])} of {formatting.count(total['delivered'])} messages "
        f"({formatting.share(total['redelivery_share'])}) were delivered more than once."
    )
    return _figure(
        "Redeliveries", "share of messages", sentence, _one(summary, "redeliveries", curve, "share"), summary
    )


def deliveries(summary: Summary) -> Figure:
    """Plot the average number of deliveries of a message."""
    intervals = summary.timeline()
    curve = Curve("average", [_of(interval, "deliveries_per_message") for interval in intervals])
    sentence = (
        f"{formatting.count(summary.totals['deliveries'])} deliveries, {formatting.decimal(summary.totals['deliveries_per_message'])} "
        "for each message that was delivered."
    )
    return _figure("Deliveries", "per message", sentence, _one(summary, "deliveries", curve, "decimal"), summary)


def lock_losses(summary: Summary) -> Figure:
    """Plot how many locks ran out: the proven number and the largest possible one."""
    intervals = summary.timeline()
    curves = [
        Curve("at least", [_count(interval, "lock_losses_at_least") for interval in intervals], FIRST),
        Curve("at most", [_count(interval, "lock_losses_at_most") for interval in intervals], SECOND),
    ]
    plot = Plot("lock-losses", [interval.at for interval in intervals], curves, "count", band=True)
    low, high = (summary.totals[f"lock_losses_{bound}"] for bound in ("at_least", "at_most"))
    sentence = f"{formatting.between(low, high)} locks ran out before their message was settled."
    if low != high:
        sentence += " Only a message's last failure is recorded, so the number lies between the two."
    return _figure("Lock losses", f"per {formatting.width(summary.width)}", sentence, plot, summary)


def all_figures(summary: Summary) -> list[Figure]:
    """Return the figures in the order of the page."""
    return [
        throughput(summary),
        latency(summary, "end_to_end", "End to end", "from sending to completion"),
        latency(summary, "waiting", "Waiting", "from available to first delivery"),
        latency(summary, "processing", "Processing", "from last delivery to completion"),
        redeliveries(summary),
        deliveries(summary),
        lock_losses(summary),
    ]


def _one(summary: Summary, key: str, curve: Curve, kind: ValueKind) -> Plot:
    return Plot(key, [interval.at for interval in summary.timeline()], [curve], kind)


def _figure(title: str, unit: str, sentence: str, plot: Plot, summary: Summary, wide: bool = False) -> Figure:
    format_value = FORMATTERS[plot.kind]
    rows = [
        (formatting.moment_in(at, summary.width), [format_value(value) for value in values])
        for at, *values in zip(plot.at, *(curve.values for curve in plot.curves), strict=True)
    ]
    columns = [curve.name.replace("\n", " ") for curve in plot.curves]
    if plot.is_empty:
        return Figure(title, unit, "No message has a value for this yet.", Markup(), None, columns, [])
    drawing = Markup(draw(plot, *SMALL_SIZE))  # our own names and numbers only
    return Figure(title, unit, sentence, drawing, Markup(draw(plot, *WIDE_SIZE)) if wide else None, columns, rows)


def _of(interval: Interval, name: str) -> float | None:
    return interval.measures[name] if interval.measures else None


def _count(interval: Interval, *names: str) -> int:
    return sum(interval.measures[name] for name in names) if interval.measures else 0


def _peak(intervals: Sequence[Interval], name: str) -> Interval | None:
    return max(intervals, key=lambda interval: _count(interval, name), default=None)
