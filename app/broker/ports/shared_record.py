"""What the processes of a broker have seen of their database, so that each learns of what only another one has seen."""

from collections.abc import Mapping
from typing import Protocol


class ObservedStore(Protocol):
    """The part of a store that knows how far its database has come."""

    def seen(self) -> Mapping[str, int]:
        """Return what this process has seen, by name: the timeline of a PostgreSQL system. A value only rises."""
        ...

    def learn(self, seen: Mapping[str, int]) -> None:
        """Learn of what other processes have seen. Connections to a server that is behind it end."""
        ...


class SharedRecord(Protocol):
    """The highest values that any process of the broker has seen. It outlives them for a month."""

    async def raise_to(self, seen: Mapping[str, int]) -> Mapping[str, int]:
        """Raise the values of these names, and return the highest of each name; nothing if no answer comes."""
        ...
