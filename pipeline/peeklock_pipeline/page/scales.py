"""Vertical axes of plots: their range, whether they are linear or logarithmic, and the values that they label."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from peeklock_pipeline.page import formatting

ValueKind: TypeAlias = Literal["count", "share", "decimal", "duration"]

ROUND_DURATIONS = (
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 120, 600, 1800, 7200, 8 * 3600,
    86_400, 3 * 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400,
)  # fmt: skip
"""Durations that a logarithmic axis labels."""

FINE_DURATIONS = (
    *(digit * 10.0**power for power in range(-3, 2) for digit in (1, 2, 5)),
    *(60 * minutes for minutes in (2, 3, 5, 10, 20, 30)), *(3600 * hours for hours in (2, 3, 5, 8, 12)),
    *(86_400 * days for days in (1, 2, 3, 5, 7, 14, 30, 60, 120, 240, 365)),
)  # fmt: skip
"""Durations that it labels if fewer than two of the others are in its range."""

MAX_TICKS = 5
HEADROOM = 1.12
"""The part of a linear axis above its greatest value."""

LOG_MARGIN = 1.6
MIN_LOG_RANGE = 10
"""The least ratio of the ends of a logarithmic axis, so that a small difference looks small."""

LEAST_DURATION = 0.0005
"""A logarithmic axis has no zero: shorter durations are drawn at its lower end."""


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from `low` to `high`, and the values that it labels."""

    low: float
    high: float
    ticks: Sequence[float]
    is_logarithmic: bool = False

    @property
    def name(self) -> str:
        """What a plot says about its axis."""
        return "logarithmic axis" if self.is_logarithmic else "linear axis"

    def place(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 at its lower end to 1."""
        inside = min(max(value, self.low), self.high)
        if self.is_logarithmic:
            return math.log(inside / self.low) / math.log(self.high / self.low)
        return (inside - self.low) / (self.high - self.low)


def scale_of(kind: ValueKind, values: Sequence[float]) -> Scale:
    """Return the axis of these values: logarithmic for durations, which differ by orders of magnitude, else linear."""
    top = max(values, default=0)
    match kind:
        case "duration":
            return _logarithmic([value for value in values if value > LEAST_DURATION])
        case "decimal":  # of deliveries, of which every delivered message has one
            return _linear(1, 1 + max(top - 1, 0.1))
        case "share":
            return _linear(0, top or 0.01)
        case "count":
            return _linear(0, max(top, 1), is_whole=True)
        case _:
            assert_never(kind)


def _linear(low: float, top: float, *, is_whole: bool = False) -> Scale:
    step = _step((top - low) / 4, is_whole)
    high = low + (top - low) * HEADROOM
    count = int((high - low) / step + 1e-9)
    return Scale(low, high, [low + step * number for number in range(count + 1)])


def _step(least: float, is_whole: bool) -> float:
    """Return the smallest round step that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    step = next(digit * power for digit in (1, 2, 2.5, 5, 10) if digit * power >= least * (1 - 1e-9))
    return max(1, 5 if step == 2.5 else step) if is_whole else step


def _logarithmic(values: Sequence[float]) -> Scale:
    low, high = min(values, default=0.001) / LOG_MARGIN, max(values, default=0.01) * LOG_MARGIN
    wider = max(1, math.sqrt(MIN_LOG_RANGE / (high / low)))
    low, high = low / wider, high * wider
    coarse = [value for value in ROUND_DURATIONS if low <= value <= high]
    ticks = coarse if len(coarse) > 1 else [value for value in FINE_DURATIONS if low <= value <= high]
    return Scale(low, high, ticks[:: math.ceil(len(ticks) / MAX_TICKS) or 1], is_logarithmic=True)


def tick_label(kind: ValueKind, value: float, top: float) -> str:
    """Return the label of a value on an axis that ends at `top`; all labels of one axis have the same unit."""
    match kind:
        case "share":
            return f"{100 * value:g} %"
        case "duration":
            return formatting.duration(value)
        case "count" if top >= 1_000_000:
            return f"{value / 1_000_000:g} M" if value else "0"
        case "count" if top >= 10_000:
            return f"{value / 1000:g} k" if value else "0"
        case "count" | "decimal":
            return f"{value:,.10g}"
        case _:
            assert_never(kind)
