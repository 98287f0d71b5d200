"""Seals the archive: ended messages gather for some seconds, then become a batch that never changes."""

from app.broker.broker import Broker
from app.domain.archive import STRETCH, Unsealed
from app.domain.instant import from_seconds, to_seconds

BEGINNING = 0

SHORTEST_REST_SECONDS = 0.1
"""What comes of age one after the other is sealed together."""


class Sealing:
    """Walks over the unsealed messages in the order in which they will be removed, a stretch at a time, in every replica.

    Messages of queues with different retentions stand far apart in that order: none of them waits for the others.
    """

    def __init__(self, broker: Broker, gather_seconds: float) -> None:
        self._broker = broker
        self._gather = from_seconds(gather_seconds)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._since = BEGINNING
        self._rest = self._gather

    async def step(self) -> float | None:
        """Look at the next stretch and seal what has gathered there; rests at the end of the walk."""
        first = await self._broker.store.archive.first_unsealed(self._since)
        if first is None:
            rest = to_seconds(self._rest)
            self._begin_anew()
            return max(rest, SHORTEST_REST_SECONDS)
        lacks = self._gather - first.waited
        if lacks > 0:
            self._rest = min(self._rest, lacks)
            self._since = first.remove_at + STRETCH + 1
        else:
            await self._seal(first)
        return 0.0

    async def _seal(self, first: Unsealed) -> None:
        """Go on where the batch ends, for it may have been full; past the stretch where somebody else is sealing it."""
        batch = await self._broker.store.archive.seal(first)
        self._since = batch.remove_at if batch else first.remove_at + STRETCH + 1
        self._broker.tally.count("messages_sealed", batch.row_count if batch else 0)
