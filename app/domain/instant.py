"""Times and durations in whole microseconds, so that every store keeps them exactly.

An `Instant` counts from 1970-01-01T00:00:00Z and always comes from the clock of a store: the application's own clock
never decides whether a lock is live.
"""

from typing import TypeAlias

Instant: TypeAlias = int
"""Microseconds since 1970-01-01T00:00:00Z."""

Duration: TypeAlias = int
"""A length of time in microseconds."""

SECOND: Duration = 1_000_000
MINUTE: Duration = 60 * SECOND
HOUR: Duration = 60 * MINUTE
DAY: Duration = 24 * HOUR


def from_seconds(seconds: float) -> Duration:
    """Convert seconds to a duration, rounded to a microsecond."""
    return round(seconds * SECOND)


def to_seconds(duration: Duration) -> float:
    """Convert a duration to seconds."""
    return duration / SECOND


def remaining(duration: Duration, measured_from: float, now: float) -> Duration:
    """Return what is left of a duration, at least 0. Both times are seconds of one monotonic clock."""
    return max(0, duration - from_seconds(now - measured_from))


def to_milliseconds(duration: Duration) -> int:
    """Convert a duration to whole milliseconds, rounded down so that rounding never extends a lock."""
    return duration // 1_000
