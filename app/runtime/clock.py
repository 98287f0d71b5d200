"""Time as an argument, so that a test can let an hour pass without waiting."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Timer(Protocol):
    """A callback that has not run yet."""

    def cancel(self) -> None:
        """Prevent the call; harmless after it."""
        ...


class Clock(Protocol):
    """The source of time of the broker and its backends."""

    def now(self) -> int:
        """Return wall-clock time in microseconds since 1970 UTC. It may jump when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start. They never run backwards: measure durations with them."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after this many seconds."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Run the callback once on the event loop, unless it is cancelled first. This is far cheaper than a sleeping task."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000

    # A method of its own would only call this one, some twenty times for each message.
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


class Signal:
    """Lets one task wait for one event with a timeout; it costs a future and a timer."""

    __slots__ = ("_clock", "_future")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._future: asyncio.Future[None] | None = None

    def fire(self) -> None:
        """Resume the waiting task. Without one nothing happens, so the caller must record the event elsewhere."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return when the signal fires, or after this many seconds."""
        self._future = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(seconds, self.fire)
        try:
            await self._future
        finally:
            timer.cancel()
            self._future = None


async def wait_for(work: Awaitable[Result], clock: Clock, seconds: float) -> Result:
    """Return the result of the work. After this many seconds cancel it and raise `TimeoutError`."""
    signal, task = Signal(clock), asyncio.ensure_future(work)
    task.add_done_callback(lambda _: signal.fire())
    try:
        await signal.wait(seconds)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        task.cancel()
