"""The text of `/metrics`, made beside the requests of the process: it takes a tenth of a second with thousands of queues."""

import asyncio
from dataclasses import replace

from app.http.metrics import Metrics
from app.http.queue_statistics import CACHE_SECONDS, QueueStatistics
from app.runtime.cache import Cache
from app.runtime.clock import Clock


class MetricsPage:
    """Renders the metrics of a server with the statistics of its queues.

    Clients that see no names of queues need no key, so they share one text per second, however often they ask.
    """

    def __init__(self, metrics: Metrics, statistics: QueueStatistics, clock: Clock) -> None:
        self._metrics = metrics
        self._statistics = statistics
        self._totals = Cache(self._render, clock, ttl_seconds=CACHE_SECONDS, max_size=1)

    async def read(self, *, per_queue: bool) -> bytes:
        """Return the metrics in the text format of Prometheus, with the names of queues or with totals only."""
        return await self._render(True) if per_queue else await self._totals.get(False)

    async def close(self) -> None:
        """Cancel what is being made."""
        await self._totals.close()
        await self._statistics.close()

    async def _render(self, per_queue: bool) -> bytes:
        snapshot = replace(await self._statistics.snapshot(), per_queue=per_queue)
        self._metrics.free_deleted_queues(snapshot)
        return await asyncio.to_thread(self._metrics.render, snapshot)
