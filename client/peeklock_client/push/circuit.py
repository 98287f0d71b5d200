"""Stops a worker from receiving while its target fails, and tries the target with one message at a time.

closed ── failures in a row ──▶ open ── after a pause ──▶ one message is received and tried ── success ──▶ closed
                                 ▲                                     │
                                 └───────── twice the pause ◀── failure┘
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger("peeklock.worker")

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
"""How long an open circuit waits before it tries a message. The pause doubles after each try that fails."""

TIMER_SECONDS = 0.001
"""How early a timer may fire, by the clock of its event loop."""


class Circuit:
    """The state of one target. Implements `worker.flow_control.FlowControl`.

    It opens after `open_after` failures in a row, of any messages. `opened` counts how often it has.
    """

    def __init__(self, target: str, open_after: int) -> None:
        self.opened = 0
        self._target = target
        self._open_after = open_after
        self._failures = 0
        self._last_failure = ""
        self._is_open = False
        self._is_trying = False
        self._pause = FIRST_PAUSE_SECONDS
        self._until = 0.0
        self._changed: list[Callable[[], None]] = []
        self._switched: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        """Whether the target has failed, and no try has succeeded since."""
        return self._is_open

    @property
    def reason(self) -> str:
        """Why the circuit is open, as a sentence for operators."""
        failures = "1 failure" if self._failures == 1 else f"{self._failures} failures in a row"
        return f"{failures}; the last: {self._last_failure}"

    def on_switch(self, switched: Callable[[], None]) -> None:
        """Call `switched` each time the circuit opens or closes."""
        self._switched.append(switched)

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever more messages may be received than before."""
        self._changed.append(changed)

    def limit(self, room: int, in_hand: int) -> int:
        """Return how many messages may be received where there is room for this many: while open, none, or one for a try."""
        if not self._is_open:
            return room
        return min(room, 1) if self._may_try() and not in_hand else 0

    def admit(self) -> bool:
        """Return whether a request may be sent now. While the circuit is open, the first one after a pause is the try."""
        if not self._is_open:
            return True
        if not self._may_try():
            return False
        self._is_trying = True
        return True

    def note_success(self) -> None:
        """Record an answer that shows that the target works. It closes the circuit."""
        self._failures, self._is_trying = 0, False
        if not self._is_open:
            return
        self._is_open, self._pause = False, FIRST_PAUSE_SECONDS
        log.warning("the circuit of %s is closed again: messages are received", self._target)
        self._notify()
        self._note_switch()

    def note_failure(self, cause: str) -> None:
        """Record that the target failed, or asked for a pause, and why."""
        self._failures += 1
        self._last_failure = cause
        if self._is_open:
            if self._is_trying:
                self._is_trying = False
                self._wait(min(2 * self._pause, MAX_PAUSE_SECONDS))
        elif self._failures >= self._open_after:
            self._is_open = True
            self.opened += 1
            self._wait(FIRST_PAUSE_SECONDS)
            self._note_switch()

    def note_no_answer(self) -> None:
        """Record that a request ended without showing anything about the target, such as by a stop of the worker."""
        if self._is_trying:
            self._is_trying = False
            self._notify()

    def _may_try(self) -> bool:
        is_over = asyncio.get_running_loop().time() >= self._until - TIMER_SECONDS
        return is_over and not self._is_trying

    def _wait(self, seconds: float) -> None:
        self._pause = seconds
        loop = asyncio.get_running_loop()
        self._until = loop.time() + seconds
        loop.call_later(seconds, self._notify)
        log.warning(
            "the circuit of %s is open after %d failures in a row: in %g s one message is received and tried",
            self._target, self._failures, seconds,
        )  # fmt: skip

    def _notify(self) -> None:
        for changed in self._changed:
            changed()

    def _note_switch(self) -> None:
        for switched in self._switched:
            switched()
