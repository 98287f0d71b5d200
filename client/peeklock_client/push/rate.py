"""Limits how many requests are sent per second."""

from __future__ import annotations

import asyncio


class Rate:
    """Spaces requests evenly, `per_second` of them. None sets no limit."""

    def __init__(self, per_second: float | None) -> None:
        self._interval = 0.0 if per_second is None else 1 / per_second
        self._next = 0.0

    async def wait(self) -> None:
        """Return when the next request may be sent."""
        if not self._interval:
            return
        now = asyncio.get_running_loop().time()
        due = max(self._next, now)
        self._next = due + self._interval
        await asyncio.sleep(due - now)
