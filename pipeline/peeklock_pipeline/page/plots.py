"""Draws curves over time as SVG. The page's style sheet has the colours, dashes and fonts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil

from peeklock_pipeline.page import formatting
from peeklock_pipeline.page.scales import Scale, ValueKind, scale_of, tick_label

Value = float | None

FIRST, SECOND, THIRD = 1, 2, 3
"""The series of the style sheet. Each has a colour and a dash, so its colour alone never tells it from another."""

DRAWN = (THIRD, FIRST, SECOND)
"""The order of drawing: where curves coincide, the dashes of the second are seen on the line of the first and on the wide
dots of the third."""

LABEL_GAP = 14
"""Pixels between labels that would overlap."""

MAX_LINE = 6
"""Letters of two names that fit one line of the right margin."""

LEFT, RIGHT, BOTTOM, TOP = 52, 78, 28, 30
"""Margins: for values on the left, names of curves on the right, times below, and the kind of axis above."""

STEPS = tuple(
    [1, 2, 5, 10, 15, 30]
    + [60 * minutes for minutes in (1, 2, 5, 10, 15, 30)]
    + [3600 * hours for hours in (1, 2, 3, 6, 12)]
    + [86_400 * days for days in (1, 2, 7, 14, 28, 91, 182, 365, 3650)]
)
"""Seconds between the times that an axis labels."""

MAX_TIME_TICKS, MAX_TIME_TICKS_WIDE = 4, 10


@dataclass(frozen=True, slots=True)
class Curve:
    """A named curve; None is a gap."""

    name: str
    values: Sequence[Value]
    series: int = FIRST


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves over the same moments, and the kind of their values."""

    at: Sequence[datetime]
    curves: Sequence[Curve]
    kind: ValueKind
    band: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no curve has a value to draw."""
        return not any(value is not None for curve in self.curves for value in curve.values)

    @property
    def scale(self) -> Scale:
        """The vertical axis."""
        return scale_of(self.kind, [value for curve in self.curves for value in curve.values if value is not None])


FORMATTERS: dict[ValueKind, Callable[[float | None], str]] = {
    "count": formatting.count,
    "share": formatting.share,
    "decimal": formatting.decimal,
    "duration": formatting.duration,
}


@dataclass(frozen=True, slots=True)
class Area:
    """The pixels of a plot, and its axes."""

    width: int
    height: int
    scale: Scale
    first: float
    last: float

    @property
    def right(self) -> int:
        """The end of the curves."""
        return self.width - RIGHT

    def x(self, at: datetime) -> float:
        """Return the position of a moment; the only one of a plot is in the middle."""
        if self.first == self.last:
            return (LEFT + self.right) / 2
        margin = (self.right - LEFT) / 100
        return (
            LEFT + margin + (at.timestamp() - self.first) / (self.last - self.first) * (self.right - LEFT - 2 * margin)
        )

    def y(self, value: float) -> float:
        """Return the position of a value."""
        return self.height - BOTTOM - self.scale.place(value) * (self.height - BOTTOM - TOP)


def draw(plot: Plot, width: int, height: int) -> str:
    """Return a plot as an SVG element of this size, in unscaled pixels. The same plot gives the same text."""
    area = Area(width, height, plot.scale, plot.at[0].timestamp(), plot.at[-1].timestamp())
    parts = [
        f'<svg viewBox="0 0 {width} {height}" aria-hidden="true">',
        f'<text x="0" y="11">{area.scale.name}</text>',
        *_values(plot, area),
        *_times(plot, area),
        _band(plot, area),
        *(_curve(plot, curve, area) for curve in sorted(plot.curves, key=lambda curve: DRAWN.index(curve.series))),
        *_names(plot, area),
        "</svg>",
    ]
    return "".join(parts)


def _values(plot: Plot, area: Area) -> list[str]:
    """Return a line and a label for each labelled value."""
    drawn: list[str] = []
    for tick in area.scale.ticks:
        y = area.y(tick)
        label = tick_label(plot.kind, tick, area.scale.high)
        drawn.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{area.right}"/>')
        drawn.append(f'<text class="end" x="{LEFT - 8}" y="{y + 4:.1f}">{label}</text>')
    return drawn


def _times(plot: Plot, area: Area) -> list[str]:
    """Return the labels of some round times; midnight is labelled with its date."""
    if area.first == area.last:
        return [_time_label(area, plot.at[0], formatting.moment(plot.at[0]))]
    most = MAX_TIME_TICKS_WIDE if area.width > 600 else MAX_TIME_TICKS
    span = area.last - area.first
    step = next((step for step in STEPS if span / step <= most), STEPS[-1] * ceil(span / STEPS[-1] / most))
    ticks = [datetime.fromtimestamp(at, UTC) for at in range(ceil(area.first / step) * step, int(area.last) + 1, step)]
    return [_time_label(area, at, formatting.tick(at, step)) for at in ticks]


def _time_label(area: Area, at: datetime, text: str) -> str:
    return f'<text class="middle" x="{area.x(at):.1f}" y="{area.height - 6}">{text}</text>'


def _curve(plot: Plot, curve: Curve, area: Area) -> str:
    """Return the line of a curve, and a dot for each value between gaps, where a line would not show it."""
    steps: list[str] = []
    dots: list[str] = []
    values = curve.values
    for place, (at, value) in enumerate(zip(plot.at, values, strict=True)):
        if value is None:
            continue
        x, y = area.x(at), area.y(value)
        follows = place > 0 and values[place - 1] is not None
        if not follows and (place + 1 == len(values) or values[place + 1] is None):
            dots.append(f'<circle class="dot{curve.series}" cx="{x:.1f}" cy="{y:.1f}" r="{1.5 + curve.series}"/>')
        else:
            steps.append(f"{'L' if follows else 'M'}{x:.1f} {y:.1f}")
    line = f'<path class="series{curve.series}" d="{"".join(steps)}"/>' if steps else ""
    return line + "".join(dots)


def _band(plot: Plot, area: Area) -> str:
    """Return the area between the two curves of a band."""
    if not plot.band:
        return ""
    low, high = (
        [(area.x(at), area.y(value or 0)) for at, value in zip(plot.at, curve.values, strict=True)]
        for curve in plot.curves
    )
    return f'<path class="band" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in [*low, *reversed(high)])}Z"/>'


def _names(plot: Plot, area: Area) -> list[str]:
    """Return the name of each curve at its end, without overlap. Curves that end in the same value share one label."""
    ends: dict[str, list[tuple[Curve, float]]] = {}
    for curve in plot.curves:
        if (end := next((value for value in reversed(curve.values) if value is not None), None)) is not None:
            ends.setdefault(FORMATTERS[plot.kind](end), []).append((curve, end))
    labels = [
        (_lines([curve.name for curve, _ in same]), same[0][0].series if len(same) == 1 else 0, area.y(same[0][1]))
        for same in ends.values()
    ]
    labels.sort(key=lambda label: label[2])
    heights = [len(lines) * LABEL_GAP for lines, _, _ in labels]
    places = spread_labels([y for _, _, y in labels], heights, area.height - BOTTOM)
    return [
        f'<text class="name{series}" x="{area.right + 8}" y="{place + 4 + number * LABEL_GAP:.1f}">{line}</text>'
        for (lines, series, _), place in zip(labels, places, strict=True)
        for number, line in enumerate(lines)
    ]


def _lines(names: Sequence[str]) -> list[str]:
    """Return the label of curves that end in the same value, in lines that fit the margin."""
    if len(names) == 1:
        return names[0].split("\n")
    first, *rest = (one_line(name) for name in names)
    lines = [first]
    for name in rest:
        if len(lines[-1]) + len(name) <= MAX_LINE:
            lines[-1] += f" = {name}"
        else:
            lines.append(f"= {name}")
    return lines


def spread_labels(positions: Sequence[float], heights: Sequence[float], bottom: float) -> list[float]:
    """Move ascending positions of labels as little as possible: none overlaps the next, and the last ends above the bottom."""
    moved = list(positions)
    for upper, lower in pairwise(range(len(moved))):
        moved[lower] = max(moved[lower], moved[upper] + heights[upper])
    if moved:
        moved[-1] = min(moved[-1], bottom - heights[-1] + LABEL_GAP)
    for upper, lower in reversed(list(pairwise(range(len(moved))))):
        moved[upper] = min(moved[upper], moved[lower] - heights[upper])
    return moved


def one_line(name: str) -> str:
    """Return the name of a curve without its line break."""
    return name.replace("-\n", "-").replace("\n", " ")
