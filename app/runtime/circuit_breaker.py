"""A circuit breaker: a peer that keeps failing is left alone for a while instead of being waited for."""

from enum import StrEnum

from app.runtime.clock import Clock


class CircuitState(StrEnum):
    """What the breaker lets through: everything, nothing, or one trial."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Stands before a fragile peer and says whether asking it is worth the wait.

    Closed, it lets every call through. So many failures in a row open it, and calls are refused until the
    cool-down is over. Then it is half open: one call goes through as a trial, whose success closes the
    breaker and whose failure opens it for another cool-down.
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
        """Where the breaker stands; it turns half open with the trial, not with the end of the cool-down."""
        return self._state

    def allows(self) -> bool:
        """Whether the peer may be called now; after a yes, report `record_success` or `failed`.

        A trial that reports neither, because its caller was cancelled, is forgotten after a cool-down and
        another one is let through, so the breaker can never stay shut for good.
        """
        if self._state is CircuitState.CLOSED:
            return True
        if self._clock.monotonic() < self._next_trial_at:
            return False
        self._start_cool_down(CircuitState.HALF_OPEN)
        return True

    def record_success(self) -> None:
        """The peer answered. A late answer to a call from before the opening does not close an open breaker."""
        if self._state is not CircuitState.OPEN:
            self._state = CircuitState.CLOSED
            self._failures_in_a_row = 0

    def record_failure(self) -> None:
        """The peer did not answer; after a trial, that is one more failure in the same row.

        A late failure does not prolong a cool-down that already runs.
        """
        if self._state is CircuitState.OPEN:
            return
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= self._failures_to_open:
            self._start_cool_down(CircuitState.OPEN)

    def _start_cool_down(self, state: CircuitState) -> None:
        self._state = state
        self._next_trial_at = self._clock.monotonic() + self._cool_down_seconds
