"""The queues of the store with their counts, read once per second at most."""

from app.broker.administration.queues import QueueWithCounts, list_queues
from app.broker.ports.lock_store import LockStore
from app.broker.ports.notifier import Counters
from app.broker.ports.queues import QueueStore
from app.domain.refusals import StoreUnavailable
from app.http.metrics import MetricsSnapshot
from app.runtime.cache import Cache
from app.runtime.clock import Clock, wait_for

_TIMEOUT_SECONDS = 1.0
"""Seconds that an answer waits for a collection. The collection continues for the next answer."""

CACHE_SECONDS = 1.0

_BATCH_SIZE = 500
"""Queues per statement."""


class QueueStatistics:
    """The queues with their counts, and the state of the store.

    A store that answered before and then exceeds the timeout counts as slow, and the last known counts are returned.
    """

    def __init__(
        self,
        queues: QueueStore,
        lock_store: LockStore,
        counters: Counters,
        clock: Clock,
        batch_size: int = _BATCH_SIZE,
    ) -> None:
        self._queues = queues
        self._lock_store = lock_store
        self._counters = counters
        self._clock = clock
        self._batch_size = batch_size
        self._cache = Cache(self._collect, clock, ttl_seconds=CACHE_SECONDS, max_size=1)
        self._last: list[QueueWithCounts] | None = None

    async def snapshot(self) -> MetricsSnapshot:
        """Return the current counts, or the last known ones while the store is slow."""
        is_slow = False
        try:
            self._last = await wait_for(self._cache.get(None), self._clock, _TIMEOUT_SECONDS)
        except TimeoutError:
            is_slow = True
            self._counters.count("slow_collections")
        except StoreUnavailable:
            self._last = None
        return MetricsSnapshot(self._last, self._lock_store.state, is_slow=is_slow)

    def forget(self) -> None:
        """Read the counts again for the next answer, because queues have changed."""
        self._cache.forget(None)

    async def close(self) -> None:
        """Cancel a collection that is running."""
        await self._cache.close()

    async def _collect(self, _: None) -> list[QueueWithCounts]:
        listed: list[QueueWithCounts] = []
        while batch := await list_queues(self._queues, listed[-1].queue.name if listed else "", self._batch_size):
            listed += batch
            if len(batch) < self._batch_size:
                break
        return listed
