"""A circuit breaker: a peer that keeps failing is not called for a while, so that no caller waits for it."""

from enum import StrEnum

from app.runtime.clock import Clock


class CircuitState(StrEnum):
    """What the breaker lets through: every call, none, or one trial."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Decides whether a peer may be called now.

    A closed breaker lets every call through. `failures_to_open` failures in a row open it, and calls are refused until
    the cool-down is over. Then it is half open: it lets one call through as a trial. A success closes the breaker, a
    failure opens it for another cool-down.
    """

    def __init__(self, clock: Clock, *, failures_to_open: int, cool_down_seconds: float) -> None:
        self._clock = clock
        self._failures_to_open = failures_to_open
        self._cool_down_seconds = cool_down_seconds
        self._state = CircuitState.CLOSED
        self._failures_in_a_row = 0
        self._next_trial_at = 0.0

    @property
    def state(self) -> CircuitState:
        """The state. It turns half open with the trial, not with the end of the cool-down."""
        return self._state

    def allows(self) -> bool:
        """Whether the peer may be called now. After true, the caller reports `record_success` or `record_failure`.

        A cancelled trial reports neither. After a cool-down the breaker forgets it and lets another trial through, so it
        never refuses calls permanently.
        """
        if self._state is CircuitState.CLOSED:
            return True
        if self._clock.monotonic() < self._next_trial_at:
            return False
        self._start_cool_down(CircuitState.HALF_OPEN)
        return True

    def record_success(self) -> None:
        """The peer answered. A late answer to a call from before the breaker opened does not close it."""
        if self._state is not CircuitState.OPEN:
            self._state = CircuitState.CLOSED
            self._failures_in_a_row = 0

    def record_failure(self) -> None:
        """The peer did not answer. A failed trial continues the same row of failures.

        A late failure does not prolong a cool-down.
        """
        if self._state is CircuitState.OPEN:
            return
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= self._failures_to_open:
            self._start_cool_down(CircuitState.OPEN)

    def _start_cool_down(self, state: CircuitState) -> None:
        self._state = state
        self._next_trial_at = self._clock.monotonic() + self._cool_down_seconds
