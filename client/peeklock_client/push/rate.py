"""Limits how many requests are sent per second."""

from __future__ import annotations

import asyncio


class Rate:
    """Spaces requests evenly, `per_second` of them, in the order of their calls. None sets no limit."""

    def __init__(self, per_second: float | None) -> None:
        self._interval = 0.0 if per_second is None else 1 / per_second
        self._next = 0.0
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        """Return when the next request may be sent. A call that is cancelled delays no other."""
        if not self._interval:
            return
        async with self._turn:
            now = asyncio.get_running_loop().time()
            due = max(self._next, now)
            await asyncio.sleep(due - now)
            self._next = due + self._interval

    def return_unused(self) -> None:
        """Let the next call return at once, because the request of the last one was not sent."""
        self._next -= self._interval
