"""Durations as people write them, such as `30 s`, `1 h 30 min` or `7 d`: read and written without a loss."""

import re
from fractions import Fraction

from app.domain.instant import DAY, HOUR, MINUTE, SECOND, Duration
from app.domain.suggestions import did_you_mean

WEEK: Duration = 7 * DAY
MILLISECOND: Duration = SECOND // 1000

UNITS: dict[str, Duration] = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), MILLISECOND),
    **dict.fromkeys(("s", "sec", "second", "seconds"), SECOND),
    **dict.fromkeys(("min", "m", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("h", "hour", "hours"), HOUR),
    **dict.fromkeys(("d", "day", "days"), DAY),
    **dict.fromkeys(("w", "week", "weeks"), WEEK),
}
"""The units by the words for them. None of them is a month, which has no fixed length, so `M` is no unit."""

MAX_UNIT: Duration = WEEK + 1
"""More than the largest unit."""

MAX_LENGTH = 64
"""Characters of a duration. The longest one that is written here has 30."""

PART = re.compile(r" *([0-9]{1,15}(?:\.[0-9]{1,15})?) *([A-Za-z]*) *,?")
"""A number with its unit, and the comma after it."""

EXAMPLES = "Write a duration such as 30 s, 2 min, 1 h 30 min or 7 d."
NO_UNIT = "This number has no unit. Write `{0} s`, `{0} min`, `{0} h` or `{0} d`."
TOO_FINE = "The smallest unit of a duration is 0.001 ms."
NOT_IN_ORDER = "Write each unit once, the largest first, as in 1 h 30 min."


class NoDuration(ValueError):
    """A text is no duration. Its first argument is a sentence for the person who has written it."""


def parse_duration(text: str) -> Duration:
    """Return the duration that a text means. Refuses with `NoDuration`.

    A number has a unit, unless it is 0. Units stand in descending order, each once: `1 h 30 min`. A number may have decimals,
    after a point.
    """
    text = text.strip()
    if not text or len(text) > MAX_LENGTH:
        raise NoDuration(EXAMPLES)
    total, last, position = Fraction(), MAX_UNIT, 0
    while position < len(text):
        part = PART.match(text, position)
        if part is None:
            raise NoDuration(EXAMPLES)
        unit = _unit(part[1], part[2], is_alone=part.end() == len(text) and position == 0)
        if unit >= last:
            raise NoDuration(NOT_IN_ORDER)
        total, last, position = total + Fraction(part[1]) * unit, unit, part.end()
    if text.endswith(","):
        raise NoDuration(EXAMPLES)
    if total.denominator != 1:
        raise NoDuration(TOO_FINE)
    return int(total)


def duration_text(duration: Duration) -> str:
    """Return a duration as a person would write it, such as `1 h 30 min`. `parse_duration` returns the same duration.

    Decimals are those of seconds, or of milliseconds in a duration below a second.
    """
    if 0 < duration < SECOND:
        return f"{_decimal(duration, MILLISECOND)} ms"
    parts: list[str] = []
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        count, duration = divmod(duration, unit)
        if count:
            parts.append(f"{count} {name}")
    if duration or not parts:
        parts.append(f"{_decimal(duration, SECOND)} s")
    return " ".join(parts)


def rounded_duration_text(duration: Duration) -> str:
    """Return about how long a duration is, in as many digits as a person compares."""
    step = MILLISECOND if duration < SECOND else SECOND // 10 if duration < MINUTE else SECOND
    step = step if duration < HOUR else MINUTE if duration < DAY else HOUR
    return duration_text((duration + step // 2) // step * step)


def _unit(number: str, name: str, *, is_alone: bool) -> Duration:
    if name.lower() in UNITS and name != "M":
        return UNITS[name.lower()]
    if name:
        raise NoDuration(f"{name} is no unit of time.{did_you_mean(name.lower(), list(UNITS))} {EXAMPLES}")
    if is_alone and not Fraction(number):
        return SECOND
    raise NoDuration(NO_UNIT.format(number))


def _decimal(duration: Duration, unit: Duration) -> str:
    """Return a duration in a unit, with as many decimals as it needs."""
    whole, rest = divmod(duration, unit)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}}".rstrip("0").rstrip(".")
