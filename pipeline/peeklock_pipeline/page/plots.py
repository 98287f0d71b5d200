"""Draws curves over time as SVG. Colours and fonts come from the page."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil
from typing import Any, Literal, TypeAlias, assert_never

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from peeklock_pipeline.page import formatting

Value = float | None

ValueKind: TypeAlias = Literal["count", "share", "decimal", "duration"]

# Placeholder colours. The page's stylesheet replaces them, in its light and its dark style.
MUTED, GRID, FIRST, SECOND, THIRD = "#010101", "#020202", "#030303", "#040404", "#050505"
VARIABLES = {MUTED: "ink-soft", GRID: "line", FIRST: "series-1", SECOND: "series-2", THIRD: "series-3"}
DASHES: Mapping[str, Any] = {FIRST: "solid", SECOND: (0, (6, 3)), THIRD: (0, (2, 3))}
"""How each curve is drawn: its colour alone never tells it from another."""

POINTS = 72
"""Points per inch, the unit of SVG. At this value one unit of a position is one pixel."""

TEXT = 11.5
LABEL_GAP = 14
"""Pixels between labels that would overlap."""

LEFT, RIGHT, BOTTOM, TOP = 52, 66, 28, 12
"""Margins: for values on the left, names of curves on the right, and times below."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": TEXT,
    "font.family": "sans-serif",
    "path.simplify": True,
    "lines.scale_dashes": False,
}

ROUND_VALUES = (
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 120, 600, 1800, 7200, 8 * 3600,
    86_400, 3 * 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400,
)  # fmt: skip
"""Durations that a logarithmic axis labels."""

STEPS = tuple(
    [1, 2, 5, 10, 15, 30]
    + [60 * minutes for minutes in (1, 2, 5, 10, 15, 30)]
    + [3600 * hours for hours in (1, 2, 3, 6, 12)]
    + [86_400 * days for days in (1, 2, 7, 14, 28, 91, 182, 365, 3650)]
)
"""Seconds between the times that an axis labels."""

MAX_TIME_TICKS, MAX_TIME_TICKS_WIDE = 4, 10
MAX_VALUE_TICKS = 5

SPREAD = 40
"""The ratio of greatest to least value above which an axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A named curve; None is a gap."""

    name: str
    values: Sequence[Value]
    colour: str = FIRST


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves over the same moments, and the kind of their values."""

    key: str
    at: Sequence[datetime]
    curves: Sequence[Curve]
    kind: ValueKind
    band: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no curve has a value to draw."""
        return not any(value is not None for curve in self.curves for value in curve.values)


FORMATTERS: dict[ValueKind, Callable[[float | None], str]] = {
    "count": formatting.count,
    "share": formatting.share,
    "decimal": formatting.decimal,
    "duration": formatting.duration,
}


def draw(plot: Plot, width: int, height: int) -> str:
    """Return a plot as an SVG element of this size, in unscaled pixels. The same plot gives the same text."""
    key = f"{plot.key}-{width}"
    with mpl.rc_context({**STYLE, "svg.hashsalt": key, "svg.id": key}):
        figure = Figure(figsize=(width / POINTS, height / POINTS), dpi=POINTS)
        figure.patch.set_alpha(0)
        inside = ((width - LEFT - RIGHT) / width, (height - BOTTOM - TOP) / height)
        axes = figure.add_axes((LEFT / width, BOTTOM / height, *inside))
        _draw_curves(axes, plot)
        _scale(axes, plot)
        _style_axes(axes, plot)
        _label_times(axes, plot, MAX_TIME_TICKS_WIDE if width > 600 else MAX_TIME_TICKS)
        _label_curves(axes, plot)
        out = io.StringIO()
        FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _inline_svg(out.getvalue())


def _draw_curves(axes: Axes, plot: Plot) -> None:
    at = [moment.timestamp() for moment in plot.at]
    for order, curve in enumerate(plot.curves):
        values: Any = [float("nan") if value is None else value for value in curve.values]
        axes.plot(
            at,
            values,
            color=curve.colour,
            linewidth=2,
            linestyle=DASHES[curve.colour],
            solid_capstyle="round",
            solid_joinstyle="round",
            zorder=9 - order,
        )
        alone = [place for place in range(len(values)) if _is_alone(curve.values, place)]
        axes.plot(
            [at[place] for place in alone],
            [values[place] for place in alone],
            "o",
            color=curve.colour,
            markersize=4.5,
            zorder=9,
            clip_on=False,
        )
    if plot.band:
        low, high = plot.curves
        axes.fill_between(
            at, [v or 0 for v in low.values], [v or 0 for v in high.values], color=FIRST, alpha=0.12, linewidth=0
        )


def _is_alone(values: Sequence[Value], place: int) -> bool:
    """Return whether a value lies between gaps, where a line would not show it."""
    if values[place] is None:
        return False
    return all(value is None for value in [*values[max(place - 1, 0) : place], *values[place + 1 : place + 2]])


def _scale(axes: Axes, plot: Plot) -> None:
    values = [value for curve in plot.curves for value in curve.values if value is not None]
    top = max(values, default=0)
    positive = [value for value in values if value > 0]
    if plot.kind == "duration" and positive and top / min(positive) > SPREAD:
        _scale_logarithmically(axes, max(min(positive), 0.0005), top)
        return
    if plot.kind == "decimal":
        _scale_from_one(axes, top)
        return
    unit = next((size for size, _ in formatting.UNITS if top >= size * 2), 0.001) if plot.kind == "duration" else 1
    top = top or {"share": 0.01, "duration": 0.001}.get(plot.kind, 1)
    ticks = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], integer=plot.kind == "count").tick_values(0, top / unit)
    axes.yaxis.set_major_locator(FixedLocator([tick * unit for tick in ticks if 0 <= tick * unit <= top * 1.12]))
    axes.set_ylim(0, top * 1.12)


def _scale_from_one(axes: Axes, top: float) -> None:
    """Start the axis at 1, because every delivered message has at least one delivery."""
    above = max(top - 1, 0.1)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.set_ylim(1, 1 + above * 1.12)


def _scale_logarithmically(axes: Axes, low: float, top: float) -> None:
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(low / 1.6, top * 1.6)
    inside = [tick for tick in ROUND_VALUES if low / 1.6 <= tick <= top * 1.6]
    axes.yaxis.set_major_locator(FixedLocator(inside[:: ceil(len(inside) / MAX_VALUE_TICKS) or 1]))
    axes.yaxis.set_minor_locator(NullLocator())


def _style_axes(axes: Axes, plot: Plot) -> None:
    """Remove everything except a few horizontal lines, and shorten the labels."""
    axes.patch.set_alpha(0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.grid(axis="y", color=GRID, linewidth=1)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=MUTED, pad=8)
    top = axes.get_ylim()[1]
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick_label(plot.kind, value, top)))


def _label_times(axes: Axes, plot: Plot, max_ticks: int) -> None:
    """Label about `max_ticks` round times at most; midnight is labelled with its date."""
    first, last = plot.at[0].timestamp(), plot.at[-1].timestamp()
    if first == last:
        axes.set_xticks([first], [formatting.moment(plot.at[0])])
        return
    step = next((step for step in STEPS if (last - first) / step <= max_ticks), STEPS[-1])
    ticks = range(ceil(first / step) * step, int(last) + 1, step)
    axes.set_xticks(list(ticks), [formatting.tick(datetime.fromtimestamp(tick, UTC), step) for tick in ticks])
    margin = (last - first) / 100
    axes.set_xlim(first - margin, last + margin)


def _tick_label(kind: ValueKind, value: float, top: float) -> str:
    """Return the label of a value on an axis that ends at `top`; all labels of one axis have the same unit."""
    match kind:
        case "share":
            return f"{100 * value:g} %"
        case "duration":
            return formatting.duration(value) if value else "0"
        case "count" if top >= 1_000_000:
            return f"{value / 1_000_000:g} M" if value else "0"
        case "count" if top >= 10_000:
            return f"{value / 1000:g} k" if value else "0"
        case "count" | "decimal":
            return f"{value:,g}"
        case _:
            assert_never(kind)


def _label_curves(axes: Axes, plot: Plot) -> None:
    """Write each curve's name at its end, without overlap."""
    ends = [(curve, next((v for v in reversed(curve.values) if v is not None), None)) for curve in plot.curves]
    shown = [
        (curve, float(axes.transData.transform((0, max(end, axes.get_ylim()[0])))[1]))
        for curve, end in ends
        if end is not None
    ]
    shown.sort(key=lambda one: one[1])
    right = axes.bbox.x1 + 8
    positions = _spread_labels([position for _, position in shown], LABEL_GAP, axes.bbox.y1)
    for (curve, _), position in zip(shown, positions, strict=True):
        axes.annotate(
            curve.name, (right, position), xycoords="figure pixels", color=curve.colour, va="center", fontweight="bold",
            annotation_clip=False,
        )  # fmt: skip


def _spread_labels(positions: Sequence[float], gap: float, top: float) -> list[float]:
    """Move ascending positions as little as possible: neighbours keep a gap, and the last stays below the top."""
    moved = list(positions)
    for lower, upper in pairwise(range(len(moved))):
        moved[upper] = max(moved[upper], moved[lower] + gap)
    for lower, upper in reversed(list(pairwise(range(len(moved))))):
        moved[upper] = min(moved[upper], top)
        moved[lower] = min(moved[lower], moved[upper] - gap)
    return moved


def _inline_svg(document: str) -> str:
    """Return the SVG element without its document. It fills the width; the stylesheet sets its colours and fonts."""
    element = document[document.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", element, count=1)
    element = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", element, count=1)
    element = re.sub(r"(font-family: |font: [^;\"]*?px )[^;\"]*", r"\1inherit", element)
    element = re.sub(r"<!--.*?-->", "", element)
    for colour, name in VARIABLES.items():
        element = element.replace(colour, f"var(--{name})")
    return element.strip()
