"""A background loop runs one pass again and again. It survives failures of the pass and stops on request."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.runtime.clock import Clock, Signal

Pass = Callable[[], Awaitable[float | None]]
"""One bounded piece of work. It returns the seconds until the next pass: 0 for at once, None for the idle delay."""

ErrorReporter = Callable[[str, BaseException], None]
"""Gets the loop's name and the error of its pass. It must not raise: that would end the loop."""

# Enough for replicas that start together to drift apart within a few passes.
PASS_JITTER = 0.1
# More jitter, so that replicas do not all return at once to a store that has just recovered.
FAILURE_JITTER = 0.5
# Doubling stops mattering long before; without a cap the float would overflow after a thousand failures.
MAX_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class LoopDelays:
    """The delays between passes: what the pass asks for, else the idle delay, and a longer one after each failure in a row.

    `jitter` returns a number from 0 up to 1. It only shortens a delay, so that no due work is late; a constant 0 keeps
    every delay exact. A pass runs again at most five seconds after the resource it needs is back.
    """

    idle_seconds: float = 1.0
    first_failure_seconds: float = 0.5
    max_failure_seconds: float = 5.0
    jitter: Callable[[], float] = random.random

    def after_pass(self, seconds: float | None) -> float:
        """Return the delay in seconds after a pass that returned `seconds`."""
        requested_seconds = self.idle_seconds if seconds is None else seconds
        return requested_seconds * (1 - PASS_JITTER * self.jitter())

    def after_failure(self, in_a_row: int) -> float:
        """Return the delay in seconds after this many failures in a row: doubled each time, up to the maximum."""
        backoff_seconds = self.first_failure_seconds * 2.0 ** min(in_a_row - 1, MAX_DOUBLINGS)
        return min(backoff_seconds, self.max_failure_seconds) * (1 - FAILURE_JITTER * self.jitter())


DEFAULT_DELAYS = LoopDelays()


class BackgroundLoop:
    """Runs a pass repeatedly from `start` to `stop`, never twice at once."""

    def __init__(
        self, name: str, run_pass: Pass, clock: Clock, *, report: ErrorReporter, delays: LoopDelays = DEFAULT_DELAYS
    ) -> None:
        self.name = name
        self._run_pass = run_pass
        self._clock = clock
        self._report = report
        self._delays = delays
        self._wake_signal = Signal(clock)
        self._stop_signal = Signal(clock)
        self._woken = False
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._callers: list[asyncio.Future[None]] = []
        """The calls of `run_now` that no pass has taken over yet."""

    def start(self) -> None:
        """Start with a pass at once. Raises `RuntimeError` if the loop already runs."""
        if self._task is not None:
            raise RuntimeError(f"loop {self.name} already runs")
        self._stopping = False
        self._task = asyncio.create_task(self._repeat(), name=f"loop {self.name}")

    def wake(self) -> None:
        """Run a pass now; if one is under way, run the next one without a delay.

        The delay after a failure is not cut short, or a busy caller would overload an unavailable store. The pass after
        that delay finds the work anyway.
        """
        self._woken = True
        self._wake_signal.fire()

    async def run_now(self) -> None:
        """Run a pass now. Return when a pass that began after this call has found no more work for this time.

        Raises the error of such a pass. The loop must run.
        """
        ended = asyncio.get_running_loop().create_future()
        self._callers.append(ended)
        self.wake()
        await ended

    async def stop(self, grace_seconds: float = 10.0) -> None:
        """Wait for the current pass to finish, and end the loop; harmless on a loop that does not run.

        A pass that takes longer than `grace_seconds` is cancelled and reported as a `TimeoutError`. Any other error that
        ended the loop is raised here.
        """
        if self._task is None:
            return
        task = self._task
        self._stopping = True
        self._wake_signal.fire()
        self._stop_signal.fire()
        timer = self._clock.call_later(grace_seconds, task.cancel)
        await asyncio.wait({task})
        timer.cancel()
        self._task = None
        for caller in self._callers:
            caller.cancel()
        self._callers.clear()
        if task.cancelled():
            self._report(self.name, TimeoutError(f"cut off after {grace_seconds} s"))
        else:
            task.result()

    async def _repeat(self) -> None:
        failures = 0
        while not self._stopping:
            self._woken = False
            callers, self._callers = self._callers, []
            try:
                requested_seconds = await self._run_pass()
            except (Exception, asyncio.CancelledError) as error:
                _resume(callers, error)
                if _is_own_cancellation(error):
                    raise
                self._report(self.name, error)
                failures += 1
                await self._sleep_after_failure(failures)
            else:
                failures = 0
                if requested_seconds == 0:
                    self._callers += callers
                else:
                    _resume(callers)
                await self._sleep_after_pass(requested_seconds)

    async def _sleep_after_pass(self, requested_seconds: float | None) -> None:
        seconds = self._delays.after_pass(requested_seconds)
        if self._woken or self._stopping or seconds <= 0:
            # Let other tasks run, even after a pass that awaited nothing.
            await asyncio.sleep(0)
        else:
            await self._wake_signal.wait(seconds)

    async def _sleep_after_failure(self, failures: int) -> None:
        if not self._stopping:
            await self._stop_signal.wait(self._delays.after_failure(failures))


def _resume(callers: list[asyncio.Future[None]], error: BaseException | None = None) -> None:
    for caller in callers:
        if caller.done():
            continue  # it was cancelled
        if error is None:
            caller.set_result(None)
        else:
            caller.set_exception(error)


def _is_own_cancellation(error: BaseException) -> bool:
    """Whether the error cancels this loop, and not only something that its pass awaited."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
