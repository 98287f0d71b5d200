"""Figures: what the store says of its queues, collected once for all that ask within a second."""

import asyncio

from app.api.http.metrics import MetricsSnapshot
from app.broker.broker import Broker
from app.broker.queues import QueueWithCounts, list_queues
from app.domain.refusals import StoreUnavailable
from app.runtime.cache import Cache

TIMEOUT_SECONDS = 1.0
"""How long an answer waits for a collection; the collection itself goes on for the next one that asks."""

CACHE_SECONDS = 1.0

BATCH_SIZE = 500
"""Queues counted per statement."""


class QueueStatistics:
    """The queues with their counts, and how the store is.

    A store that does not answer in time after it did so before is slow and not away: the figures of before are
    given again.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._cache = Cache(self._collect, broker.clock, ttl_seconds=CACHE_SECONDS, max_size=1)
        self._last: list[QueueWithCounts] | None = None

    async def snapshot(self) -> MetricsSnapshot:
        """What is known now."""
        is_slow = False
        try:
            self._last = await asyncio.wait_for(self._cache.get(None), TIMEOUT_SECONDS)
        except TimeoutError:
            is_slow = True
            self._broker.counters.count("slow_collections")
        except StoreUnavailable:
            self._last = None
        return MetricsSnapshot(self._last, self._broker.lock_store.state, is_slow=is_slow)

    async def close(self) -> None:
        """End the collection under way."""
        await self._cache.close()

    async def _collect(self, _: None) -> list[QueueWithCounts]:
        listed: list[QueueWithCounts] = []
        while batch := await list_queues(self._broker, listed[-1].queue.name if listed else "", BATCH_SIZE):
            listed += batch
            if len(batch) < BATCH_SIZE:
                break
        return listed
