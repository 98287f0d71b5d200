"""How long a failed message waits, by its strategy, and when it is not tried again."""

from __future__ import annotations

import pytest
from peeklock_client import ConstantRetry, ExponentialRetry, LinearRetry, NoRetry
from peeklock_client.worker.retry import RetryStrategy, strategy_for

SAMPLES = 50


def delays(strategy: RetryStrategy, failures: int = 5) -> list[float | None]:
    """Return how long a message waits after its first failure, its second one, and so on."""
    return [strategy.delay_seconds(number) for number in range(1, failures + 1)]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (NoRetry(), [None] * 5),
        (ConstantRetry(3), [3] * 5),
        (ConstantRetry(3, max_attempts=3), [3, 3, None, None, None]),
        (LinearRetry(3), [3, 6, 9, 12, 15]),
        (LinearRetry(3, max_seconds=10), [3, 6, 9, 10, 10]),
        (LinearRetry(3, max_attempts=2), [3, None, None, None, None]),
        (ExponentialRetry(3, jitter=0), [3, 6, 12, 24, 48]),
        (ExponentialRetry(3, factor=10, max_seconds=400, jitter=0), [3, 30, 300, 400, 400]),
        (ExponentialRetry(3, max_attempts=4, jitter=0), [3, 6, 12, None, None]),
    ],
    ids=str,
)
def test_the_delay_follows_from_the_number_of_failures(strategy: RetryStrategy, expected: list[float | None]) -> None:
    assert delays(strategy) == expected


def test_jitter_only_makes_a_delay_shorter_by_at_most_its_share() -> None:
    strategy = ExponentialRetry(100, max_seconds=100, jitter=0.3)
    found = [strategy.delay_seconds(9) or 0 for _ in range(SAMPLES)]
    assert all(70 <= delay <= 100 for delay in found)
    assert len(set(found)) > 1


def test_by_default_messages_that_failed_together_come_back_at_different_times() -> None:
    assert len({ExponentialRetry(100).delay_seconds(1) for _ in range(SAMPLES)}) > 1


@pytest.mark.parametrize("strategy", [LinearRetry(1), ExponentialRetry(1, jitter=0)], ids=str)
def test_no_delay_is_longer_than_an_hour_unless_it_is_set(strategy: RetryStrategy) -> None:
    assert strategy.delay_seconds(100_000) == 3600


class Rejected(ValueError):
    """An error of a kind that has a strategy, and whose parent has one too."""


class Unlisted(OSError):
    """An error of a kind that has none, and whose parent has one."""


@pytest.mark.behaviour("S2.7")
@pytest.mark.parametrize(
    ("error", "expected"), [(Rejected(), 1), (ValueError(), 2), (Unlisted(), 3), (KeyError(), None)], ids=repr
)
def test_the_most_specific_kind_of_an_error_decides(error: Exception, expected: float | None) -> None:
    retry = {ValueError: ConstantRetry(2), Rejected: ConstantRetry(1), OSError: ConstantRetry(3)}
    strategy = strategy_for(retry, error)
    assert (strategy and strategy.delay_seconds(1)) == expected


def test_one_strategy_is_for_every_error_and_without_one_the_queue_decides() -> None:
    assert strategy_for(NoRetry(), KeyError()) == NoRetry()
    assert strategy_for(None, KeyError()) is None
