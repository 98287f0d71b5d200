"""Time as a value that is handed in, so that a test can make an hour pass in no time."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A callback that has not run yet."""

    def cancel(self) -> None:
        """Make sure that it never runs; harmless once it has."""
        ...


class Clock(Protocol):
    """Where everything below the rooms gets its time from."""

    def now(self) -> int:
        """Wall-clock time in microseconds since 1970 UTC; it may jump when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start that never run backwards: for measuring how long something took."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once that many seconds have passed."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back once on the event loop, unless cancelled first; far cheaper than a task that sleeps."""
        ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


class Signal:
    """One task's place to wait for a single event, with a limit: a future and a timer, nothing more."""

    __slots__ = ("_clock", "_future")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._future: asyncio.Future[None] | None = None

    def fire(self) -> None:
        """Let the waiting task go on; without one nothing happens, so what it stands for must be remembered elsewhere."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return when the signal is given or the seconds have passed, whichever comes first."""
        self._future = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(seconds, self.fire)
        try:
            await self._future
        finally:
            timer.cancel()
            self._future = None
