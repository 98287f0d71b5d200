"""Figures: what the store says of its queues, collected once for all that ask within a second."""

import asyncio

from app.api.metrics import Snapshot
from app.broker.broker import Broker
from app.broker.queues import Listed, list_queues
from app.domain.refusals import StoreUnavailable
from app.runtime.cache import Cache

PATIENCE_SECONDS = 1.0
"""How long an answer waits for a collection; the collection itself goes on for the next one that asks."""

KEEP_SECONDS = 1.0

BATCH_SIZE = 500
"""Queues counted per statement."""


class Figures:
    """The queues with their counts, and how the store is.

    A store that does not answer in time after it did so before is slow and not away: the figures of before are
    given again.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._collected = Cache(self._collect, broker.clock, keep_seconds=KEEP_SECONDS, largest=1)
        self._last: list[Listed] | None = None

    async def snapshot(self) -> Snapshot:
        """What is known now."""
        is_slow = False
        try:
            self._last = await asyncio.wait_for(self._collected.get(None), PATIENCE_SECONDS)
        except TimeoutError:
            is_slow = True
            self._broker.tally.count("slow_collections")
        except StoreUnavailable:
            self._last = None
        return Snapshot(self._last, self._broker.locks.state, is_slow=is_slow)

    async def close(self) -> None:
        """End the collection under way."""
        await self._collected.close()

    async def _collect(self, _: None) -> list[Listed]:
        listed: list[Listed] = []
        while batch := await list_queues(self._broker, listed[-1].queue.name if listed else "", BATCH_SIZE):
            listed += batch
            if len(batch) < BATCH_SIZE:
                break
        return listed
