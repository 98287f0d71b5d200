"""How long a message waits after a failure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.instant import MINUTE, SECOND
from app.domain.retry import (
    ExponentialDelay,
    FixedDelay,
    LinearDelay,
    ListedDelays,
    NoDelay,
    RetryPolicy,
    retry_delay,
)


def delays(policy: RetryPolicy, failures: int = 4, chance: float = 0.0) -> list[float]:
    return [retry_delay(policy, number, chance) / SECOND for number in range(1, failures + 1)]


@pytest.mark.behaviour("S2.7")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (NoDelay(), [0, 0, 0, 0]),
        (FixedDelay(5 * SECOND), [5, 5, 5, 5]),
        (LinearDelay(SECOND, 2 * SECOND), [1, 3, 5, 7]),
        (LinearDelay(SECOND, 2 * SECOND, longest=4 * SECOND), [1, 3, 4, 4]),
        (ExponentialDelay(SECOND, 2.0), [1, 2, 4, 8]),
        (ExponentialDelay(SECOND, 3.0, longest=10 * SECOND), [1, 3, 9, 10]),
        (ListedDelays((SECOND, MINUTE)), [1, 60, 60, 60]),
    ],
)
def test_each_policy_follows_the_number_of_failures(policy: RetryPolicy, expected: list[float]) -> None:
    assert delays(policy) == expected


def test_jitter_shortens_a_delay_by_at_most_its_share() -> None:
    policy = ExponentialDelay(SECOND, 2.0, jitter=0.5)
    assert delays(policy, chance=0.0) == [1, 2, 4, 8]
    assert delays(policy, chance=0.5) == [0.75, 1.5, 3, 6]


@given(
    failures=st.integers(1, 10**6),
    chance=st.floats(0, 1, exclude_max=True),
    factor=st.floats(1, 1000),
    first=st.integers(0, 10**12),
)
def test_no_number_of_failures_exceeds_the_longest_delay(
    failures: int, chance: float, factor: float, first: int
) -> None:
    policy = ExponentialDelay(first, factor, longest=MINUTE, jitter=1.0)
    assert 0 <= retry_delay(policy, failures, chance) <= MINUTE
