"""A share of the time: work that may take long goes one piece at a time and leaves room for everything else."""

import asyncio
from types import TracebackType

from app.runtime.clock import Clock


class Throttle:
    """Lets one piece of work at a time through, in the order in which they come, for a share of the time in all.

    A piece is what happens in the `async with` block. After it the next one waits until the pieces together have
    taken no more than their share; a piece that comes after a long pause begins at once.
    """

    def __init__(self, clock: Clock, share: float) -> None:
        self._clock = clock
        self._pause_ratio = 1 / share - 1
        self._lock = asyncio.Lock()
        self._began = 0.0
        self._free_at = 0.0

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        try:
            wait = self._free_at - self._clock.monotonic()
            if wait > 0:
                await self._clock.sleep(wait)
        except BaseException:
            self._lock.release()
            raise
        self._began = self._clock.monotonic()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = self._clock.monotonic()
        self._free_at = now + (now - self._began) * self._pause_ratio
        self._lock.release()
