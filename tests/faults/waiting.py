"""Waits for what must become true, however slow the machine; only what never becomes true fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

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
