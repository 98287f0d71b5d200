"""Plots as shapes of SVG in a box of 1000 by 100. Pages and open views get the same shapes."""

from collections.abc import Sequence
from itertools import pairwise

WIDTH, HEIGHT = 1000, 100
_HEADROOM = 0.94
"""How much of the height the highest value takes."""

_LONGEST_STEP = 2.5
"""Points that are further apart than this many of their intervals are not connected: nothing is known between them."""


def line_path(times: Sequence[float], values: Sequence[float], begin: float, end: float, highest: float) -> str:
    """Return the path through the values at these times, from `begin` at the left to `end` at the right."""
    if end <= begin or highest <= 0 or not times:
        return ""
    steps = [later - earlier for earlier, later in pairwise(times)]
    longest = _LONGEST_STEP * sorted(steps)[len(steps) // 2] if steps else 0
    parts: list[str] = []
    before = times[0] - 2 * longest - 1
    for time, value in zip(times, values, strict=True):
        is_apart = not 0 <= time - before <= longest
        parts.append(f"{'M' if is_apart else 'L'}{_x(time, begin, end)} {_y(value, highest)}")
        before = time
    # A last point without a neighbour is drawn as a dot.
    return "".join(parts) + "h0"


def bar_height(count: int, highest: int) -> float:
    """Return the height of a bar. A bar of a few among many can still be seen."""
    return round(max(count / highest * HEIGHT * _HEADROOM, 2.0), 1) if count else 0.0


def _x(time: float, begin: float, end: float) -> str:
    return f"{min(max((time - begin) / (end - begin), 0), 1) * WIDTH:.0f}"


def _y(value: float, highest: float) -> str:
    return f"{HEIGHT - value / highest * HEIGHT * _HEADROOM:.1f}".removesuffix(".0")
