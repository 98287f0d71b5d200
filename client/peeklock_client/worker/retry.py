"""Retry strategies: how long a message waits after its handler has failed (S2.7, S2.8)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class RetryStrategy(Protocol):
    """Decides whether and when a message is processed again."""

    def delay_seconds(self, failures: int) -> float | None:
        """Return the delay after this number of failures, None to dead-letter the message."""
        ...


@dataclass(frozen=True, slots=True)
class NoRetry(RetryStrategy):
    """Dead-letter the message after its first failure."""

    def delay_seconds(self, failures: int) -> float | None:
        """Return None."""
        return None


@dataclass(frozen=True, slots=True)
class ConstantRetry(RetryStrategy):
    """Retry after the same delay each time, up to `max_attempts` attempts in all."""

    seconds: float
    max_attempts: int | None = None

    def delay_seconds(self, failures: int) -> float | None:
        """Return the delay."""
        return None if _is_last(failures, self.max_attempts) else self.seconds


@dataclass(frozen=True, slots=True)
class LinearRetry(RetryStrategy):
    """Retry after `seconds`, then after two times and three times as long, up to `max_seconds`."""

    seconds: float
    max_seconds: float = 3600.0
    max_attempts: int | None = None

    def delay_seconds(self, failures: int) -> float | None:
        """Return the delay."""
        return None if _is_last(failures, self.max_attempts) else min(self.seconds * failures, self.max_seconds)


@dataclass(frozen=True, slots=True)
class ExponentialRetry(RetryStrategy):
    """Retry after `seconds`, then after `factor` times the previous delay, up to `max_seconds`.

    Each delay is reduced by a random share of up to `jitter`, so messages that failed together are not retried together.
    """

    seconds: float
    factor: float = 2.0
    max_seconds: float = 3600.0
    jitter: float = 0.2
    max_attempts: int | None = None

    def delay_seconds(self, failures: int) -> float | None:
        """Return the delay."""
        if _is_last(failures, self.max_attempts):
            return None
        # The exponent is bounded, because a float overflows above 2 to the 1023.
        delay = min(self.seconds * self.factor ** min(failures - 1, 64), self.max_seconds)
        return delay * (1 - random.uniform(0, self.jitter))


Retry = RetryStrategy | Mapping[type[Exception], RetryStrategy]
"""One strategy for all exceptions, or a strategy for each type. The most specific type counts."""


def strategy_for(retry: Retry | None, error: BaseException) -> RetryStrategy | None:
    """Return the strategy for an exception, None if the retry policy of the queue decides."""
    if not isinstance(retry, Mapping):
        return retry
    return next((retry[kind] for kind in type(error).__mro__ if kind in retry), None)


def max_attempts_of(retry: Retry | None) -> int | None:
    """Return the largest number of attempts that a strategy allows, None if none has a limit."""
    strategies = retry.values() if isinstance(retry, Mapping) else [retry]
    limits = [getattr(strategy, "max_attempts", None) for strategy in strategies]
    return max((limit for limit in limits if isinstance(limit, int)), default=None)


def _is_last(failures: int, max_attempts: int | None) -> bool:
    return max_attempts is not None and failures >= max_attempts
