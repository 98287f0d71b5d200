"""Retry delays: how long a message waits after a failure before it is delivered again.

The delay depends on the number of failures and on the queue's `RetryPolicy`. The random fraction for jitter is a
parameter, so that the same inputs always give the same delay.
"""

from dataclasses import dataclass
from typing import TypeAlias

from app.domain.instant import DAY, SECOND, Duration

MAX_DELAY: Duration = 7 * DAY
MAX_LISTED_DELAYS = 100


@dataclass(frozen=True, slots=True)
class NoDelay:
    """Deliver again at once (the default)."""


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """The same delay after every failure."""

    delay: Duration


@dataclass(frozen=True, slots=True)
class LinearDelay:
    """`first` after the first failure, `step` more after each further one, never above `longest`."""

    first: Duration
    step: Duration
    longest: Duration = MAX_DELAY


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """`first`, then `factor` times the one before, never above `longest`.

    `jitter` is the largest share of the delay (0 to 1) that is subtracted at random, so that messages that failed
    together do not all come back together.
    """

    first: Duration = SECOND
    factor: float = 2.0
    longest: Duration = MAX_DELAY
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class ListedDelays:
    """One delay per failure in order; the last one is used from then on."""

    delays: tuple[Duration, ...]


RetryPolicy: TypeAlias = NoDelay | FixedDelay | LinearDelay | ExponentialDelay | ListedDelays


def retry_delay(policy: RetryPolicy, failures: int, random_fraction: float) -> Duration:
    """Return the delay after failure number `failures` (1 is the first); `random_fraction` is in [0, 1)."""
    match policy:
        case NoDelay():
            return 0
        case FixedDelay(delay):
            return delay
        case LinearDelay(first, step, longest):
            return min(first + step * (failures - 1), longest)
        case ExponentialDelay(first, factor, longest, jitter):
            # The exponent is capped because a float overflows long before the cap on the delay does.
            grown = min(first * factor ** min(failures - 1, 64), longest)
            return int(grown * (1 - jitter * random_fraction))
        case ListedDelays(delays):
            return delays[min(failures, len(delays)) - 1]
