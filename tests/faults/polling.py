"""Waits for what must become true, however slow the machine, and goes on hurting meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

TIMEOUT_SECONDS = 90.0
"""Seconds that anything may take on a busy machine."""

POLL_SECONDS = 0.03
"""Seconds between two looks."""


async def wait_until(condition: Callable[[], object], what: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
    """Return once the condition holds; fail, saying what did not happen, when it never does."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"in {timeout_seconds:.0f} seconds it has not come to this: {what}")
        await asyncio.sleep(POLL_SECONDS)


async def wait_for_count(count: Callable[[], int], expected: int, what: str) -> None:
    """Return once a count has grown to this number; fail when it does not grow for as long as anything may take."""
    while (counted := count()) < expected:
        await wait_until(lambda before=counted: count() > before, f"{what}: {counted} of {expected}")


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do work without an end while the block runs; if it came to one, it failed, and so does the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        if not task.cancel():
            task.result()
