"""A peer that keeps failing is left alone, tried once in a while, and trusted again when it answers."""

import pytest

from app.runtime.breaker import Breaker, BreakerState
from tests.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def breaker(clock: VirtualClock) -> Breaker:
    return Breaker(clock, failures_to_open=3, cool_down_seconds=5)


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        assert breaker.allows()
        breaker.failed()


def test_it_lets_everything_through_until_the_last_failure_in_a_row(breaker: Breaker) -> None:
    fail(breaker, 2)
    assert (breaker.state, breaker.allows()) == (BreakerState.CLOSED, True)
    breaker.failed()
    assert (breaker.state, breaker.allows()) == (BreakerState.OPEN, False)


def test_a_success_begins_the_count_anew(breaker: Breaker) -> None:
    fail(breaker, 2)
    breaker.succeeded()
    fail(breaker, 2)
    assert breaker.state is BreakerState.CLOSED


async def test_after_the_cool_down_exactly_one_trial_goes_through(breaker: Breaker, clock: VirtualClock) -> None:
    fail(breaker, 3)
    await clock.advance(4.999)
    assert not breaker.allows()
    await clock.advance(0.001)
    assert [breaker.allows() for _ in range(3)] == [True, False, False]
    assert breaker.state is BreakerState.HALF_OPEN


async def test_a_good_trial_closes_it(breaker: Breaker, clock: VirtualClock) -> None:
    fail(breaker, 3)
    await clock.advance(5)
    assert breaker.allows()
    breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED
    fail(breaker, 2)
    assert breaker.state is BreakerState.CLOSED, "the failures before the opening count no more"


async def test_a_bad_trial_opens_it_for_another_whole_cool_down(breaker: Breaker, clock: VirtualClock) -> None:
    fail(breaker, 3)
    await clock.advance(5)
    await clock.advance(2)
    fail(breaker, 1)
    assert breaker.state is BreakerState.OPEN
    await clock.advance(4.999)
    assert not breaker.allows()
    await clock.advance(0.001)
    assert breaker.allows()


async def test_a_trial_nobody_reports_is_replaced_after_a_cool_down(breaker: Breaker, clock: VirtualClock) -> None:
    fail(breaker, 3)
    await clock.advance(5)
    assert breaker.allows()
    await clock.advance(4.999)
    assert not breaker.allows()
    await clock.advance(0.001)
    assert [breaker.allows(), breaker.allows()] == [True, False]


async def test_late_news_of_calls_from_before_the_opening_changes_nothing(
    breaker: Breaker, clock: VirtualClock
) -> None:
    fail(breaker, 3)
    await clock.advance(4)
    breaker.failed()
    breaker.succeeded()
    assert breaker.state is BreakerState.OPEN
    await clock.advance(1)
    assert breaker.allows(), "the late failure did not prolong the cool-down"
