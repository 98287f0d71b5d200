"""The handlers that one subscriber may run at a time, over all its queues (S2.17, S2.31)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class HandlerSlots:
    """Counts running handlers. When a slot becomes free, it calls the functions that `offer_to` has added, in turn."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._queues = deque[Callable[[], None]]()

    @property
    def has_free(self) -> bool:
        """Whether another handler may start."""
        return self._free > 0

    def offer_to(self, start_waiting: Callable[[], None]) -> None:
        """Call `start_waiting` whenever a slot becomes free. It takes the slots that it needs."""
        self._queues.append(start_waiting)

    def take(self) -> None:
        """Take a free slot."""
        self._free -= 1

    def release(self) -> None:
        """Free a slot. Each time, another queue may take it first."""
        self._free += 1
        self._queues.rotate(-1)
        for start_waiting in [*self._queues]:
            start_waiting()
