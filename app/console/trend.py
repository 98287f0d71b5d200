"""When the dead letters of a queue came, as bars of equal intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.broker.administration.dead_letter_groups import DeadLetterGroups
from app.console.charts import HEIGHT, bar_height
from app.console.formats import format_number
from app.domain.instant import DAY, HOUR, MINUTE, Duration, Instant

BARS = 48
INTERVALS: Sequence[tuple[Duration, str, str]] = (
    (MINUTE, "minute", "48 minutes"),
    (5 * MINUTE, "5 minutes", "4 hours"),
    (15 * MINUTE, "15 minutes", "12 hours"),
    (HOUR, "hour", "48 hours"),
    (6 * HOUR, "6 hours", "12 days"),
    (DAY, "day", "48 days"),
    (7 * DAY, "week", "48 weeks"),
)
"""The intervals of a bar, and how long all bars last. The first is used whose bars reach back to the oldest dead letter, else
the last."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The dead letters that came in one interval, and where its bar is drawn."""

    begin: Instant
    count: int
    left: int
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class Trend:
    """The bars, the oldest first, and a sentence about them. `interval` is the length of one in words."""

    bars: Sequence[Bar]
    interval: str
    sentence: str


def trend_of(found: DeadLetterGroups, now: Instant) -> Trend | None:
    """Return the trend of the dead letters that were counted, None without one."""
    if not found.minutes:
        return None
    oldest = min(found.minutes)
    length, name, span = next((one for one in INTERVALS if now - oldest < (BARS - 1) * one[0]), INTERVALS[-1])
    begin = now // length * length - (BARS - 1) * length
    counts = [0] * BARS
    older = 0
    for minute, count in found.minutes.items():
        if minute < begin:
            older += count
        else:
            # The clocks of the database and of this server differ a little.
            counts[min((minute - begin) // length, BARS - 1)] += count
    highest = max(counts)
    bars = [_bar(begin + index * length, index, count, highest) for index, count in enumerate(counts)]
    return Trend(bars, name, _sentence(sum(counts), older, highest, span, name))


def _bar(begin: Instant, index: int, count: int, highest: int) -> Bar:
    height = bar_height(count, highest)
    return Bar(begin, count, index * 10, round(HEIGHT - height, 1), height)


def _sentence(shown: int, older: int, highest: int, span: str, name: str) -> str:
    most = f"at most {format_number(highest)} per {name}"
    first = f"{format_number(shown)} came in the last {span}, {most}" if shown else f"None came in the last {span}"
    return f"{first}. {format_number(older)} came before." if older else f"{first}."
