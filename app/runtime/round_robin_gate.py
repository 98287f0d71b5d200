"""A gate: work in small steps gets a bounded share of the event loop, however many callers do it at once."""

import asyncio


class RoundRobinGate:
    """Lets one caller pass in each iteration of the event loop, in order of arrival.

    With `asyncio.sleep(0)` instead, every caller would do a step in each iteration, and all other tasks would wait for
    these steps.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def enter(self) -> None:
        """Return when the caller may do its next step, which it does before it waits for anything else."""
        async with self._lock:
            await asyncio.sleep(0)
