"""An event loop whose time passes only when every task waits, so that hours take no time and schedules repeat exactly.

With a seed, what is ready at the same time runs in a random order, which the seed repeats.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Sleeps by moving its clock to the next timer. It serves no sockets."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._now = 0.0
        self._order = None if seed is None else random.Random(seed)

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self._now = max(self._now, self._scheduled[0]._when)
        if self._order is not None:
            self._order.shuffle(self._ready)
        super()._run_once()  # type: ignore[misc]


def run_virtually(coroutine: Coroutine[Any, Any, Result], seed: int | None = None) -> Result:
    """Run a coroutine in a virtual loop. What waits for ever fails by the timeout of an hour."""
    with asyncio.Runner(loop_factory=partial(VirtualLoop, seed)) as runner:
        return runner.run(_within_an_hour(coroutine))


async def _within_an_hour(coroutine: Coroutine[Any, Any, Result]) -> Result:
    async with asyncio.timeout(3600):
        return await coroutine
