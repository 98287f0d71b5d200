"""A small cache whose values expire after a fixed time. Concurrent callers of one key share one load."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from app.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Keeps what `load` returned for a key, `None` included, for at most `ttl_seconds` and at most `max_size` keys.

    The values that are kept weigh at most `max_weight` together by `weigh`, unless the newest alone weighs more. Each load
    drops what has expired. An error of `load` goes to every caller that waits for it, and is not kept.
    """

    def __init__(
        self,
        load: Callable[[K], Coroutine[Any, Any, V]],
        clock: Clock,
        *,
        ttl_seconds: float,
        max_size: int,
        weigh: Callable[[V], int] | None = None,
        max_weight: int = 0,
    ) -> None:
        self._load = load
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._max_size = max_size
        self._weigh = weigh
        self._max_weight = max_weight
        self._weight = 0
        self._entries: dict[K, tuple[float, V, int]] = {}
        self._loading: dict[K, asyncio.Task[V]] = {}
        self._load_tasks: set[asyncio.Task[V]] = set()

    async def get(self, key: K) -> V:
        """Return the value of a key, read from its source at most `ttl_seconds` ago.

        The cancellation of a caller does not cancel a load that other callers await.
        """
        entry = self._entries.get(key)
        if entry is not None and self._clock.monotonic() < entry[0]:
            return entry[1]
        return await asyncio.shield(self._loading.get(key) or self._start_load(key))

    def forget(self, key: K) -> None:
        """Make the next `get` load again. A load under way still answers its callers, and is not kept."""
        self._drop(key)
        self._loading.pop(key, None)

    def clear(self) -> None:
        """Forget every key."""
        self._entries.clear()
        self._weight = 0
        self._loading.clear()

    async def close(self) -> None:
        """Cancel the loads under way, and with them their callers; return when they have ended."""
        for task in self._load_tasks:
            task.cancel()
        if self._load_tasks:
            await asyncio.wait(self._load_tasks)

    def _start_load(self, key: K) -> asyncio.Task[V]:
        # The value may be as old as the start of its load, so its time to live starts there.
        expires_at = self._clock.monotonic() + self._ttl_seconds
        task = asyncio.get_running_loop().create_task(self._load(key))
        self._loading[key] = task
        self._load_tasks.add(task)
        task.add_done_callback(partial(self._finish_load, key, expires_at))
        return task

    def _finish_load(self, key: K, expires_at: float, task: asyncio.Task[V]) -> None:
        self._load_tasks.discard(task)
        if self._loading.get(key) is not task:
            return
        del self._loading[key]
        if not task.cancelled() and task.exception() is None:
            self._store(key, expires_at, task.result())

    def _store(self, key: K, expires_at: float, value: V) -> None:
        self._drop(key)
        weight = 0 if self._weigh is None else self._weigh(value)
        self._entries[key] = (expires_at, value, weight)
        self._weight += weight
        self._drop_oldest(self._clock.monotonic())

    def _drop(self, key: K) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self._weight -= entry[2]

    def _drop_oldest(self, now: float) -> None:
        """Drop what has expired, and what is more than `max_size`. The entries are in the order in which they were loaded."""
        while self._entries:
            oldest = next(iter(self._entries))
            fits = len(self._entries) <= self._max_size and (
                self._weight <= self._max_weight or len(self._entries) == 1
            )
            if now < self._entries[oldest][0] and fits:
                return
            self._drop(oldest)
