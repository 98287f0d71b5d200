"""A clock that a test moves; due timers run in the order of their times."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tests.bounds import bounded

# Turns of the event loop after each step of time: more than the longest chain of tasks that wake one another.
EVENT_LOOP_TURNS = 50
# Steps of one advance: more than one a second in a day.
MAX_STEPS = 100_000

STEP_SECONDS = 0.05
"""A small part of any lock, so that slow work on the machine's clock outlives no lock."""

Result = TypeVar("Result")


@dataclass(order=True, slots=True)
class VirtualTimer:
    """A callback with its time. Callbacks of the same time run in the order in which they were set."""

    due: int
    number: int
    callback: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """Implements `app.runtime.clock.Clock`; no time passes between two calls of `advance`."""

    def __init__(self, now: int = 1_800_000_000_000_000) -> None:
        self._start = self._now = now
        self._timers: list[VirtualTimer] = []
        self._set = 0

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._start) / 1_000_000

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: woken.done() or woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> VirtualTimer:
        self._set += 1
        timer = VirtualTimer(self._now + max(0, round(seconds * 1_000_000)), self._set, callback)
        heapq.heappush(self._timers, timer)
        return timer

    @property
    def timers(self) -> int:
        """The number of timers that are neither due nor cancelled."""
        return sum(not timer.cancelled for timer in self._timers)

    async def advance(self, seconds: float) -> None:
        """Let this time pass. On return the woken tasks have finished their work, including their own timers."""
        await run_ready_tasks()
        end = self._now + round(seconds * 1_000_000)
        for _ in bounded("no timer is due", MAX_STEPS):
            if not self._timers or self._timers[0].due > end:
                break
            self._now = max(self._now, self._timers[0].due)
            for timer in self._due():
                # A timer of the same time may have cancelled it.
                if not timer.cancelled:
                    timer.callback()
            await run_ready_tasks()
        self._now = end

    def _due(self) -> list[VirtualTimer]:
        due: list[VirtualTimer] = []
        while self._timers and self._timers[0].due <= self._now:
            due.append(heapq.heappop(self._timers))
        return due


async def run_ready_tasks() -> None:
    """Run every task until it waits for an event that only the test can cause."""
    for _ in range(EVENT_LOOP_TURNS):
        await asyncio.sleep(0)


async def run_advancing(clock: VirtualClock, work: Awaitable[Result]) -> Result:
    """Return the result of work that sleeps on the virtual clock and waits for a server in between.

    Time passes only while something sleeps, so no lock ends during slow work."""
    task = asyncio.ensure_future(work)
    for _ in bounded("the work ends"):
        if task.done():
            break
        if clock.timers:
            await clock.advance(STEP_SECONDS)
        await asyncio.sleep(0.01)
    return await task
