"""How far a claim scans a queue of large messages: on these engines a scan cannot stop when its budget is spent."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

MAX_SCAN = 1000
"""Messages: the maximum of one claim."""

MAX_KEYS = 1000
"""Keys that are remembered. Beyond that all are forgotten, which costs each key one scan that is too long."""


class ScanLimits(Generic[Key]):
    """Remembers for each key how many messages to scan. A key whose messages all fit the budget is not remembered."""

    def __init__(self) -> None:
        self._limits: dict[Key, int] = {}

    def limit(self, key: Key, requested: int) -> int:
        """Return how many messages to scan for a claim that requests this many."""
        return min(requested, self._limits.get(key, requested))

    def shrink(self, key: Key, fitted: int) -> None:
        """Record that only `fitted` messages, at least one, fitted the budget: scan twice as many from now on."""
        if len(self._limits) >= MAX_KEYS:
            self._limits.clear()
        self._limits[key] = 2 * fitted

    def grow(self, key: Key) -> int:
        """Record that all scanned messages fitted the budget. Return the doubled limit."""
        most = 2 * self._limits.pop(key, MAX_SCAN)
        if most < MAX_SCAN:
            self._limits[key] = most
        return most
