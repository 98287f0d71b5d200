"""The highest values that the processes of a broker have seen in their database, shared among them."""

from collections.abc import Mapping
from typing import Protocol


class ObservedStore(Protocol):
    """The part of a store that remembers the highest values that it has seen in its database."""

    def seen(self) -> Mapping[str, int]:
        """Return the highest values that this process has seen, such as the timeline of a PostgreSQL system, by name."""
        ...

    def learn(self, seen: Mapping[str, int]) -> None:
        """Learn the values that other processes have seen. Connections to a server with a lower value are closed."""
        ...


class SharedRecord(Protocol):
    """The highest values that any process of the broker has seen. They are kept for a month after the last process."""

    async def raise_to(self, seen: Mapping[str, int]) -> Mapping[str, int]:
        """Raise the recorded values to these. Return the highest value of each name, or an empty mapping without an answer."""
        ...
