"""A clock that runs like the machine's clock, and that a test can move forward."""

import asyncio
import time
from collections.abc import Callable
from itertools import count

from app.domain.instant import from_seconds, to_seconds


class MovableTimer:
    """A callback that runs once its time is reached, by the machine's clock or by a move."""

    def __init__(self, clock: "MovableClock", seconds: float, callback: Callable[[], object]) -> None:
        self._clock = clock
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self.due = clock.monotonic() + max(0.0, seconds)

    def wait(self) -> None:
        """Schedule the timer on the event loop for the rest of its time. Called by the clock."""
        if self._handle is not None:
            self._handle.cancel()
        left = max(0.0, self.due - self._clock.monotonic())
        self._handle = asyncio.get_running_loop().call_later(left, self.fire)

    def cancel(self) -> None:
        """See `Timer`."""
        if self._handle is not None:
            self._handle.cancel()
        self._clock.forget(self)

    def fire(self) -> None:
        """Run the callback. A timer that was cancelled does not fire."""
        self.cancel()
        self._callback()


class MovableClock:
    """Implements `app.runtime.clock.Clock`. Its time passes like the machine's, and `move` adds to it.

    It belongs to one event loop. Timers of the network are not its timers, so a move cuts no connection.
    """

    def __init__(self) -> None:
        self._ahead = 0
        self._numbers = count()
        self._timers: dict[MovableTimer, int] = {}

    def now(self) -> int:
        """See `Clock`."""
        return time.time_ns() // 1_000 + self._ahead

    def monotonic(self) -> float:
        """See `Clock`."""
        return time.monotonic() + to_seconds(self._ahead)

    async def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: woken.done() or woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> MovableTimer:
        """See `Clock`."""
        timer = MovableTimer(self, seconds, callback)
        self._timers[timer] = next(self._numbers)
        timer.wait()
        return timer

    def move(self, seconds: float) -> None:
        """Add to the time, and fire the timers that are due, in the order of their times."""
        self._ahead += from_seconds(seconds)
        now = self.monotonic()
        due = sorted((timer.due, number, timer) for timer, number in self._timers.items() if timer.due <= now)
        for _, _, timer in due:
            if timer in self._timers:  # an earlier one may have cancelled it
                timer.fire()
        for timer in self._timers:
            timer.wait()

    def forget(self, timer: MovableTimer) -> None:
        """Remove a timer that has ended. Called by the timer."""
        self._timers.pop(timer, None)
