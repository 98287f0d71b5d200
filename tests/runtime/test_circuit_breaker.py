"""A peer that keeps failing is not called, except for a trial after each cool-down, until it answers."""

import pytest

from app.runtime.circuit_breaker import CircuitBreaker, CircuitState
from tests.virtual_clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def breaker(clock: VirtualClock) -> CircuitBreaker:
    return CircuitBreaker(clock, failures_to_open=3, cool_down_seconds=5)


def fail(breaker: CircuitBreaker, times: int) -> None:
    for _ in range(times):
        assert breaker.allows()
        breaker.record_failure()


def test_it_opens_after_the_last_allowed_failure_in_a_row(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    assert (breaker.state, breaker.allows()) == (CircuitState.CLOSED, True)
    breaker.record_failure()
    assert (breaker.state, breaker.allows()) == (CircuitState.OPEN, False)


def test_a_success_resets_the_failure_count(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    breaker.record_success()
    fail(breaker, 2)
    assert breaker.state is CircuitState.CLOSED


async def test_after_the_cool_down_exactly_one_trial_goes_through(breaker: CircuitBreaker, clock: VirtualClock) -> None:
    fail(breaker, 3)
    await clock.advance(4.999)
    assert not breaker.allows()
    await clock.advance(0.001)
    assert [breaker.allows() for _ in range(3)] == [True, False, False]
    assert breaker.state is CircuitState.HALF_OPEN


async def test_a_successful_trial_closes_it(breaker: CircuitBreaker, clock: VirtualClock) -> None:
    fail(breaker, 3)
    await clock.advance(5)
    assert breaker.allows()
    breaker.record_success()
    assert breaker.state is CircuitState.CLOSED
    fail(breaker, 2)
    assert breaker.state is CircuitState.CLOSED, "failures before the opening no longer count"


async def test_a_failed_trial_opens_it_for_another_full_cool_down(breaker: CircuitBreaker, clock: VirtualClock) -> None:
    fail(breaker, 3)
    await clock.advance(5)
    await clock.advance(2)
    fail(breaker, 1)
    assert breaker.state is CircuitState.OPEN
    await clock.advance(4.999)
    assert not breaker.allows()
    await clock.advance(0.001)
    assert breaker.allows()


async def test_an_unreported_trial_is_replaced_after_a_cool_down(breaker: CircuitBreaker, clock: VirtualClock) -> None:
    fail(breaker, 3)
    await clock.advance(5)
    assert breaker.allows()
    await clock.advance(4.999)
    assert not breaker.allows()
    await clock.advance(0.001)
    assert [breaker.allows(), breaker.allows()] == [True, False]


async def test_late_results_of_earlier_calls_do_not_change_an_open_breaker(
    breaker: CircuitBreaker, clock: VirtualClock
) -> None:
    fail(breaker, 3)
    await clock.advance(4)
    breaker.record_failure()
    breaker.record_success()
    assert breaker.state is CircuitState.OPEN
    await clock.advance(1)
    assert breaker.allows(), "the late failure did not prolong the cool-down"
