"""Numbers, rates, durations, sizes and times as people read them."""

import re
from datetime import UTC, datetime, timedelta

from markupsafe import Markup, escape

from app.domain.instant import Duration, Instant, to_seconds
from app.domain.plurals import count_of

CODE = re.compile(r"`([^`]*)`")
"""A name within a text of the documentation."""

WIRE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)\.\d{6}Z", re.ASCII)
"""An instant within a text, as the API writes it."""


def format_number(number: float) -> str:
    """Format a number with separators between thousands."""
    return f"{number:,.0f}"


def format_rate(rate: float) -> str:
    """Format a rate per second: two digits below 10, and a dash for none."""
    if rate == 0:
        return "–"
    return f"{rate:.2f}" if rate < 1 else f"{rate:.1f}" if rate < 10 else f"{rate:,.0f}"


def format_duration(duration: Duration | None) -> str:
    """Format a duration in its two largest units, as `3 h 20 min`; a dash for None."""
    if duration is None:
        return "–"
    seconds = to_seconds(duration)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, seconds = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def format_bytes(size: float) -> str:
    """Format a number of bytes in the largest unit of 1024 that fits."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def format_exact_bytes(size: int) -> str:
    """Format a number of bytes in the largest unit that fits, with the exact number beside it."""
    return format_bytes(size) if size < 1024 else f"{format_bytes(size)} ({count_of(size, 'byte')})"


def format_time(instant: Instant) -> str:
    """Format an instant for people, in UTC; a script shows it in the zone of the reader."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)).strftime("%Y-%m-%d %H:%M:%S UTC")


def mark_times(text: str) -> Markup:
    """Return a text as HTML in which instants are elements, as they are elsewhere on a page."""
    return Markup(WIRE_TIME.sub(r'<time datetime="\g<0>">\1 \2 UTC</time>', str(escape(text))))


def mark_code(text: str) -> Markup:
    """Return a text as HTML in which names between backticks are elements."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))
