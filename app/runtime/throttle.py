"""Runs long work one piece at a time, for a share of the time, so that other work gets the rest."""

import asyncio
from types import TracebackType

from app.runtime.clock import Clock


class Throttle:
    """Runs one `async with` block at a time, in order of arrival, and all of them for at most `share` of the time.

    After a block, the next one waits until the blocks have taken no more than their share. A block after a long pause
    starts at once.
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
