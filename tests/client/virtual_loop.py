"""An event loop whose time passes only when every task waits, so that hours take no time and schedules repeat exactly."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Sleeps by moving its clock to the next timer. It serves no sockets."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self._now = max(self._now, self._scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]


def run_virtually(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a virtual loop. What waits for ever fails by the timeout of an hour."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_within_an_hour(coroutine))


async def _within_an_hour(coroutine: Coroutine[Any, Any, Result]) -> Result:
    async with asyncio.timeout(3600):
        return await coroutine
