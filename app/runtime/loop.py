"""A loop repeats one pass, rests as long as the pass says, survives its failures and stops when told."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.runtime.clock import Clock, Signal

Pass = Callable[[], Awaitable[float | None]]
"""One bounded piece of work. Returns the seconds to rest; 0: again at once; None: the loop's idle rest."""

Report = Callable[[str, BaseException], None]
"""Hears the loop's name and what its pass raised."""

# Replicas started together drift apart within a few rests; always early, so nothing that is due comes late.
REST_JITTER = 0.1
# After a shared store has come back, half of the replicas' failure rests overlap at most.
FAILURE_JITTER = 0.5


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to rest after failures in a row: doubling from the first, never above the largest."""

    first_seconds: float = 0.5
    largest_seconds: float = 30.0

    def rest(self, failures: int) -> float:
        """The rest in seconds after that many failures in a row, counted from 1."""
        # 2**32 first rests exceed any sensible largest; beyond that a float would overflow one day.
        return min(self.largest_seconds, self.first_seconds * 2.0 ** min(failures - 1, 32))


class Loop:
    """Runs a pass again and again, from `start` to `stop`, never twice at once."""

    def __init__(
        self,
        name: str,
        run_pass: Pass,
        clock: Clock,
        *,
        report: Report,
        idle_seconds: float = 1.0,
        backoff: Backoff = Backoff(),
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`jitter` gives a number from 0 up to 1; with a constant 0 every rest has its exact length."""
        self.name = name
        self._run_pass = run_pass
        self._clock = clock
        self._report = report
        self._idle_seconds = idle_seconds
        self._backoff = backoff
        self._jitter = jitter
        self._signal = Signal(clock)
        self._woken = False
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with a pass at once. Refuses a loop that already runs."""
        if self._task is not None:
            raise RuntimeError(f"loop {self.name} was already started")
        self._stopping = False
        self._task = asyncio.create_task(self._repeat(), name=f"loop {self.name}")

    def wake(self) -> None:
        """There is work: end the rest now, or skip the next one if a pass is under way.

        The rest after a failure is not cut short, or a busy caller would hammer a store that is away; the
        pass that follows it sees the work anyway.
        """
        self._woken = True
        self._signal.give()

    async def stop(self, grace_seconds: float = 10.0) -> None:
        """Let the pass under way finish, and return when it has; harmless on a loop that does not run.

        A pass that takes longer than the grace is cancelled, and reported as a `TimeoutError`.
        """
        if self._task is None:
            return
        task = self._task
        self._stopping = True
        self._signal.give()
        timer = self._clock.call_later(grace_seconds, task.cancel)
        await asyncio.wait({task})
        timer.cancel()
        self._task = None
        if task.cancelled():
            self._report(self.name, TimeoutError(f"cut off after {grace_seconds} s"))

    async def _repeat(self) -> None:
        failures = 0
        while not self._stopping:
            self._woken = False
            try:
                seconds = await self._run_pass()
            except (Exception, asyncio.CancelledError) as error:
                if _is_being_cancelled():
                    raise
                self._report(self.name, error)
                failures += 1
                await self._rest_after_failure(failures)
            else:
                failures = 0
                await self._rest(self._idle_seconds if seconds is None else seconds)

    async def _rest(self, seconds: float) -> None:
        if seconds <= 0 or self._woken:
            # A pass that never waits for anything must still let other tasks run.
            await asyncio.sleep(0)
        elif not self._stopping:
            await self._signal.wait(seconds * (1 - REST_JITTER * self._jitter()))

    async def _rest_after_failure(self, failures: int) -> None:
        seconds = self._backoff.rest(failures) * (1 - FAILURE_JITTER * self._jitter())
        until = self._clock.monotonic() + seconds
        while not self._stopping and (left := until - self._clock.monotonic()) > 0:
            await self._signal.wait(left)


def _is_being_cancelled() -> bool:
    """Tell a cancellation of this loop from one that merely escaped from something its pass waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
