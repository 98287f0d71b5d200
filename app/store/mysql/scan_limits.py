"""How far a claim looks ahead in a queue of large messages, where a look cannot end when its budget is spent."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

MAX_SCAN = 1000
"""Messages: as many as a claim may ask for."""

MAX_KEYS = 1000
"""Lines that are remembered. With more of them all begin again, which costs each one look that is too long."""


class ScanLimits(Generic[Key]):
    """Remembers for each line how many messages to look at. A line whose messages fit is not remembered."""

    def __init__(self) -> None:
        self._limits: dict[Key, int] = {}

    def limit(self, key: Key, requested: int) -> int:
        """How many messages to look at for a claim that asks for this many."""
        return min(requested, self._limits.get(key, requested))

    def shrink(self, key: Key, fitted: int) -> None:
        """A look found more than fitted, and at least one fitted: look at twice as many as fitted from now on."""
        if len(self._limits) >= MAX_KEYS:
            self._limits.clear()
        self._limits[key] = 2 * fitted

    def grow(self, key: Key) -> int:
        """All that a look found has fitted: look at twice as many. How many that is."""
        most = 2 * self._limits.pop(key, MAX_SCAN)
        if most < MAX_SCAN:
            self._limits[key] = most
        return most
