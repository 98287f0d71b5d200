"""Waits for what must become true, however slow the machine, and goes on hurting meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

PATIENCE = 90.0
"""Seconds that anything may take on a busy machine."""

GLANCE = 0.03
"""Seconds between two looks."""


async def until(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Return once the condition holds; fail, saying what did not happen, when it never does."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"in {patience:.0f} seconds it has not come to this: {what}")
        await asyncio.sleep(GLANCE)


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do work without an end while the block runs; if it came to one, it failed, and so does the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        if not task.cancel():
            task.result()
