"""The figures of a report: which curves, and what they say in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from peeklock_pipeline.page import words
from peeklock_pipeline.page.plots import DARK, LIGHT, MIDDLE, SAY, Curve, Plot, draw
from peeklock_pipeline.page.summary import Part, Summary

SMALL = (360, 210)
WIDE = (1120, 260)

PERCENTILES = (("p50", DARK), ("p95", MIDDLE), ("p99", LIGHT))


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with its title, what it shows in words, its drawings, and its numbers as a table."""

    title: str
    unit: str
    words: str
    drawing: Markup
    wide_drawing: Markup | None
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


def throughput(summary: Summary) -> Figure:
    """How many messages were sent, and how many came to their end."""
    parts = summary.timeline()
    curves = [
        Curve(
            "ended",
            [
                _count(part, "completed", "received", "dead_lettered", "expired", "purged", "cancelled")
                for part in parts
            ],
            MIDDLE,
        ),
        Curve("sent", [_count(part, "sent") for part in parts], DARK),
    ]
    plot = Plot("throughput", [part.at for part in parts], curves[::-1], "count")
    each = words.width(summary.width)
    peak = _peak(parts, "sent")
    said = (
        f"Most were sent at {words.moment_in(peak.at, summary.width)}: {words.count(_of(peak, 'sent'))} per {each}."
        if peak
        else ""
    )
    return _figure("Throughput", f"messages per {each}", said, plot, summary, wide=True)


def latency(summary: Summary, time: str, title: str, unit: str) -> Figure:
    """The percentiles of a time."""
    parts = summary.timeline()
    curves = [Curve(name, [_of(part, f"{time}_{name}") for part in parts], colour) for name, colour in PERCENTILES]
    plot = Plot(time, [part.at for part in parts], curves[::-1], "duration")
    half, most, nearly = (summary.totals[f"{time}_{name}"] for name, _ in PERCENTILES)
    said = (
        f"Overall half took at most {words.duration(half)}, 95 % at most {words.duration(most)} and "
        f"99 % at most {words.duration(nearly)}."
    )
    return _figure(title, unit, said if half is not None else "", plot, summary)


def redeliveries(summary: Summary) -> Figure:
    """How many messages needed more than one delivery."""
    parts = summary.timeline()
    curve = Curve("delivered\nagain", [_of(part, "redelivery_share") for part in parts])
    total = summary.totals
    said = (
        f"{words.count(total['redelivered'])} of {words.count(total['delivered'])} messages "
        f"({words.share(total['redelivery_share'])}) were delivered more than once."
    )
    return _figure("Redeliveries", "share of messages", said, _one(summary, "redeliveries", curve, "share"), summary)


def deliveries(summary: Summary) -> Figure:
    """How many deliveries a message needed on average."""
    parts = summary.timeline()
    curve = Curve("average", [_of(part, "deliveries_per_message") for part in parts])
    said = (
        f"{words.count(summary.totals['deliveries'])} deliveries, {words.decimal(summary.totals['deliveries_per_message'])} "
        "for each message that was delivered."
    )
    return _figure("Deliveries", "per message", said, _one(summary, "deliveries", curve, "decimal"), summary)


def lock_losses(summary: Summary) -> Figure:
    """How many locks ran out, between what is proved and what is possible."""
    parts = summary.timeline()
    curves = [
        Curve("at least", [_count(part, "lock_losses_at_least") for part in parts], DARK),
        Curve("at most", [_count(part, "lock_losses_at_most") for part in parts], LIGHT),
    ]
    plot = Plot("lock-losses", [part.at for part in parts], curves, "count", band=True)
    low, high = (summary.totals[f"lock_losses_{bound}"] for bound in ("at_least", "at_most"))
    said = f"{words.between(low, high)} locks ran out before their message was settled."
    if low != high:
        said += " Only a message's last failure is recorded, so the number lies between the two."
    return _figure("Lock losses", f"per {words.width(summary.width)}", said, plot, summary)


def all_of(summary: Summary) -> list[Figure]:
    """The figures in the order of the page."""
    return [
        throughput(summary),
        latency(summary, "end_to_end", "End to end", "from sending to completion"),
        latency(summary, "waiting", "Waiting", "from available to first delivery"),
        latency(summary, "processing", "Processing", "from last delivery to completion"),
        redeliveries(summary),
        deliveries(summary),
        lock_losses(summary),
    ]


def _one(summary: Summary, key: str, curve: Curve, kind: str) -> Plot:
    return Plot(key, [part.at for part in summary.timeline()], [curve], kind)


def _figure(title: str, unit: str, said: str, plot: Plot, summary: Summary, wide: bool = False) -> Figure:
    say = SAY[plot.kind]
    rows = [
        (words.moment_in(at, summary.width), [say(value) for value in values])
        for at, *values in zip(plot.at, *(curve.values for curve in plot.curves), strict=True)
    ]
    columns = [curve.name.replace("\n", " ") for curve in plot.curves]
    if plot.is_empty:
        return Figure(title, unit, "There is nothing to show: no message has this yet.", Markup(), None, columns, [])
    drawing = Markup(draw(plot, *SMALL))  # made of our own names and numbers alone
    return Figure(title, unit, said, drawing, Markup(draw(plot, *WIDE)) if wide else None, columns, rows)


def _of(part: Part, name: str) -> float | None:
    return part.measures[name] if part.measures else None


def _count(part: Part, *names: str) -> int:
    return sum(part.measures[name] for name in names) if part.measures else 0


def _peak(parts: Sequence[Part], name: str) -> Part | None:
    return max(parts, key=lambda part: _count(part, name), default=None)
