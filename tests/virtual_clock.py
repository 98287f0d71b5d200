"""A clock that stands still until a test moves it, and wakes whoever is due in the order they are due."""

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
"""A small part of any lock, so that work that takes long by the machine's clock outlives none."""

Result = TypeVar("Result")


@dataclass(order=True, slots=True)
class VirtualTimer:
    """A callback with its time; those due together run in the order in which they were set."""

    due: int
    number: int
    callback: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """Satisfies `app.runtime.clock.Clock`; nothing happens between two calls of `advance`."""

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
        """How many timers are set and neither due nor cancelled."""
        return sum(not timer.cancelled for timer in self._timers)

    async def advance(self, seconds: float) -> None:
        """Let the time pass; what the woken tasks do, also with timers of their own, is done on return."""
        await run_ready_tasks()
        end = self._now + round(seconds * 1_000_000)
        for _ in bounded("no timer is due", MAX_STEPS):
            if not self._timers or self._timers[0].due > end:
                break
            self._now = max(self._now, self._timers[0].due)
            for timer in self._due():
                # One due at the same time may have cancelled it meanwhile.
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
    """Let every task go on until it waits for something that only the test can bring about."""
    for _ in range(EVENT_LOOP_TURNS):
        await asyncio.sleep(0)


async def run_advancing(clock: VirtualClock, work: Awaitable[Result]) -> Result:
    """The answer of work that pauses by the virtual clock and waits for a server in between."""
    task = asyncio.ensure_future(work)
    for _ in bounded("the work ends"):
        if task.done():
            break
        await clock.advance(STEP_SECONDS)
        await asyncio.sleep(0.01)
    return await task
