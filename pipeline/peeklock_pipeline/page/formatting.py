"""Formats numbers for readers: grouped, rounded, and with units."""

from datetime import datetime

UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))
UNIT_NAMES = {"d": "day", "h": "hour", "min": "minute", "s": "second"}
NO_VALUE = "–"


def count(number: float | None) -> str:
    """Return a count: 12,345."""
    return NO_VALUE if number is None else f"{number:,.0f}"


def noun(number: int, one: str) -> str:
    """Return the noun beside a count: "message" beside 1, "messages" beside 2."""
    return one if number == 1 else f"{one}s"


def counted(number: int, one: str) -> str:
    """Return a count with its noun: 1 message, 12,345 messages."""
    return f"{count(number)} {noun(number, one)}"


def decimal(number: float | None) -> str:
    """Return a ratio: 1.25."""
    return NO_VALUE if number is None else f"{number:,.2f}"


def share(part: float | None) -> str:
    """Return a share: 3.1 %. A share above zero is never shown as 0 %."""
    if part is None:
        return NO_VALUE
    percent = 100 * part
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.0f} %" if percent in (0, 100) else f"{min(percent, 99.9):.1f} %"


def duration(seconds: float | None) -> str:
    """Return a duration in the unit that fits: 250 ms, 1.5 s, 3 min, 2.4 h, 9 d. It is negative if clocks differed."""
    if seconds is None:
        return NO_VALUE
    if seconds < 0:
        return f"-{duration(-seconds)}"
    # A unit above the second is used from two of it.
    rounded = float(f"{seconds:.3g}")
    size, unit = next(((size, unit) for size, unit in UNITS if rounded >= size * (2 if size > 1 else 1)), UNITS[-1])
    return f"{seconds / size:.3g} {unit}" if seconds / size < 1000 else f"{seconds / size:,.0f} {unit}"


def width(seconds: int) -> str:
    """Return the width of an interval, exactly: 5 s, 1 min, 6 h, 7 d."""
    size, unit = next((int(size), unit) for size, unit in UNITS if seconds >= size)
    return f"{seconds // size} {unit}" if seconds // size > 1 else UNIT_NAMES[unit]


def length(seconds: float) -> str:
    """Return the length of a period of whole hours: 7 days, 24 hours, hour."""
    size, unit = (86_400, "day") if seconds % 86_400 == 0 and seconds > 86_400 else (3600, "hour")
    return f"{seconds / size:,.0f} {unit}s" if seconds > size else unit


def moment(at: datetime) -> str:
    """Return a moment to the minute: 5 Mar 2026, 14:05."""
    return f"{at.day} {at:%b %Y, %H:%M}"


def moment_in(at: datetime, part: int) -> str:
    """Return the start of an interval, to the precision of its width in seconds."""
    if part % 86_400 == 0:
        return f"{at.day} {at:%b %Y}"
    return f"{at.day} {at:%b, %H:%M}" if part % 60 == 0 else f"{at.day} {at:%b, %H:%M:%S}"


def tick(at: datetime, step: int) -> str:
    """Return the label of a time on an axis labelled every `step` seconds: 2 Mar at midnight, else 14:05."""
    if step >= 91 * 86_400:
        return f"{at:%b %Y}"
    if (at.hour, at.minute, at.second) == (0, 0, 0):
        return f"{at.day} {at:%b}"
    return f"{at:%H:%M}" if step % 60 == 0 else f"{at:%H:%M:%S}"


def between(low: float, high: float) -> str:
    """Return a range of counts: 12–40."""
    return count(low) if low == high else f"{count(low)}–{count(high)}"


def share_between(low: float, high: float) -> str:
    """Return a range of shares: 35.0 % to 40.0 %; `unknown` if it is any share."""
    if (low, high) == (0, 1):
        return "unknown"
    return share(low) if share(low) == share(high) else f"{share(low)} to {share(high)}"
