"""A loop repeats one pass, rests as long as the pass says, survives its failures and stops when told."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.runtime.clock import Clock, Signal

Pass = Callable[[], Awaitable[float | None]]
"""One bounded piece of work. It returns the seconds to rest: 0 is at once again, None the loop's idle rest."""

ErrorReporter = Callable[[str, BaseException], None]
"""Hears the loop's name and what its pass raised. It must not raise itself: that would end the loop."""

# Enough for replicas started together to drift apart within some rests.
PASS_JITTER = 0.1
# More of it, so that replicas do not come back all at once to a store that has just recovered.
FAILURE_JITTER = 0.5
# Doubling stops mattering long before; without a cap the float would overflow after a thousand failures.
MAX_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class LoopDelays:
    """How long a loop rests: as its pass says, idly when the pass says nothing, and longer with each failure in a row.

    `jitter` gives a number from 0 up to 1. It only ever shortens a rest, so that nothing due comes late; a
    constant 0 gives every rest its exact length. So a pass looks again at most five seconds after what it needs is back.
    """

    idle_seconds: float = 1.0
    first_failure_seconds: float = 0.5
    max_failure_seconds: float = 5.0
    jitter: Callable[[], float] = random.random

    def after_pass(self, seconds: float | None) -> float:
        """The rest in seconds after a pass that asked for this one."""
        requested_seconds = self.idle_seconds if seconds is None else seconds
        return requested_seconds * (1 - PASS_JITTER * self.jitter())

    def after_failure(self, in_a_row: int) -> float:
        """The rest in seconds after that many failures in a row: doubling from the first, up to the largest."""
        backoff_seconds = self.first_failure_seconds * 2.0 ** min(in_a_row - 1, MAX_DOUBLINGS)
        return min(backoff_seconds, self.max_failure_seconds) * (1 - FAILURE_JITTER * self.jitter())


DEFAULT_DELAYS = LoopDelays()


class BackgroundLoop:
    """Runs a pass again and again, from `start` to `stop`, never twice at once."""

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

    def start(self) -> None:
        """Begin with a pass at once. Refuses a loop that already runs."""
        if self._task is not None:
            raise RuntimeError(f"loop {self.name} runs already")
        self._stopping = False
        self._task = asyncio.create_task(self._repeat(), name=f"loop {self.name}")

    def wake(self) -> None:
        """There is work: end the rest now, or skip the next one if a pass is under way.

        The rest after a failure is not cut short, or a busy caller would hammer a store that is away. The
        pass that follows it sees the work anyway.
        """
        self._woken = True
        self._wake_signal.fire()

    async def stop(self, grace_seconds: float = 10.0) -> None:
        """Let the pass under way finish, and return when it has; harmless on a loop that does not run.

        A pass that takes longer than the grace is cancelled and reported as a `TimeoutError`. Whatever else
        ended the loop before its time is raised here.
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
        if task.cancelled():
            self._report(self.name, TimeoutError(f"cut off after {grace_seconds} s"))
        else:
            task.result()

    async def _repeat(self) -> None:
        failures = 0
        while not self._stopping:
            self._woken = False
            try:
                requested_seconds = await self._run_pass()
            except (Exception, asyncio.CancelledError) as error:
                if _is_own_cancellation(error):
                    raise
                self._report(self.name, error)
                failures += 1
                await self._sleep_after_failure(failures)
            else:
                failures = 0
                await self._sleep_after_pass(requested_seconds)

    async def _sleep_after_pass(self, requested_seconds: float | None) -> None:
        seconds = self._delays.after_pass(requested_seconds)
        if self._woken or self._stopping or seconds <= 0:
            # A pass that never waits for anything must still let other tasks run.
            await asyncio.sleep(0)
        else:
            await self._wake_signal.wait(seconds)

    async def _sleep_after_failure(self, failures: int) -> None:
        if not self._stopping:
            await self._stop_signal.wait(self._delays.after_failure(failures))


def _is_own_cancellation(error: BaseException) -> bool:
    """Tell a cancellation of this loop from one that escaped from something its pass waited for."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
