"""Points and lengths of time are whole microseconds, so that every store keeps them exactly.

An `Instant` counts from 1970-01-01T00:00:00Z and always comes from the clock of a store: the
application's own clock never decides about a lock.
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
    """The duration of so many seconds, rounded to a microsecond."""
    return round(seconds * SECOND)


def to_seconds(duration: Duration) -> float:
    """The duration as a number of seconds."""
    return duration / SECOND


def remaining(duration: Duration, measured_from: float, now: float) -> Duration:
    """What is left of a duration, never below zero; both moments are seconds of one monotonic clock."""
    return max(0, duration - from_seconds(now - measured_from))


def to_milliseconds(duration: Duration) -> int:
    """The duration in whole milliseconds, rounded down so that no promise grows by rounding."""
    return duration // 1_000
