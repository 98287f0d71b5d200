"""The queues of the store with their counts, read once a second at most."""

import asyncio

from app.api.http.metrics import MetricsSnapshot
from app.broker.broker import Broker
from app.broker.queues import QueueWithCounts, list_queues
from app.domain.refusals import StoreUnavailable
from app.runtime.cache import Cache

TIMEOUT_SECONDS = 1.0
"""Seconds that an answer waits for a collection. The collection continues for the next answer."""

CACHE_SECONDS = 1.0

BATCH_SIZE = 500
"""Queues per statement."""


class QueueStatistics:
    """The queues with their counts, and the state of the store.

    A store that answered before and then exceeds the timeout counts as slow, and the last known counts are returned.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._cache = Cache(self._collect, broker.clock, ttl_seconds=CACHE_SECONDS, max_size=1)
        self._last: list[QueueWithCounts] | None = None

    async def snapshot(self) -> MetricsSnapshot:
        """Return the current counts, or the last known ones while the store is slow."""
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
        """Cancel a collection that is running."""
        await self._cache.close()

    async def _collect(self, _: None) -> list[QueueWithCounts]:
        listed: list[QueueWithCounts] = []
        while batch := await list_queues(self._broker, listed[-1].queue.name if listed else "", BATCH_SIZE):
            listed += batch
            if len(batch) < BATCH_SIZE:
                break
        return listed
