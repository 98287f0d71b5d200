"""The pause of a worker after a body that does not have the type of its handler (S2.6).

One such message may be the fault of its sender. Many are that of the handler, or of a queue that holds messages of several
kinds. So the worker dead-letters one at a time, and waits longer after each that follows without a body that fits.
"""

from __future__ import annotations

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
TIMER_SECONDS = 0.001
"""How early a timer may fire, by the clock of its event loop: uvloop rounds to milliseconds."""


class InvalidBodyBackoff:
    """Counts bodies in a row that did not fit, and says for how long no further handler starts."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._until = 0.0

    def record_valid(self) -> None:
        """Record a body that had the type of its handler. A pause goes on."""
        self._in_a_row = 0

    def record_invalid(self, now: float) -> bool:
        """Record a body that did not fit. Return whether it begins a pause; False if a pause is under way."""
        if self.seconds_left(now):
            return False
        self._until = now + min(FIRST_PAUSE_SECONDS * 2.0**self._in_a_row, MAX_PAUSE_SECONDS)
        self._in_a_row = min(self._in_a_row + 1, 16)
        return True

    def seconds_left(self, now: float) -> float:
        """Return how long no handler may start, 0 if one may start now."""
        left = self._until - now
        return left if left > TIMER_SECONDS else 0.0
