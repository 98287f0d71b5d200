"""A small cache whose values lapse after a fixed time, loaded once however many callers ask at once."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from app.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Remembers what `load` returned for a key, `None` included, for at most `keep_seconds` and `largest` keys.

    What `load` raises goes to everybody waiting for it and is not remembered.
    """

    def __init__(
        self, load: Callable[[K], Coroutine[Any, Any, V]], clock: Clock, *, ttl_seconds: float, max_size: int
    ) -> None:
        self._load = load
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._max_size = max_size
        self._entries: dict[K, tuple[float, V]] = {}
        self._loading: dict[K, asyncio.Task[V]] = {}
        self._load_tasks: set[asyncio.Task[V]] = set()

    async def get(self, key: K) -> V:
        """The value of a key, never one read from its source longer ago than `keep_seconds`.

        A caller who is cancelled leaves the load to the others who wait for it.
        """
        entry = self._entries.get(key)
        if entry is not None and self._clock.monotonic() < entry[0]:
            return entry[1]
        return await asyncio.shield(self._loading.get(key) or self._start_load(key))

    def forget(self, key: K) -> None:
        """Let the next `get` load again; a load under way answers those who wait, and is not remembered."""
        self._entries.pop(key, None)
        self._loading.pop(key, None)

    def clear(self) -> None:
        """Forget every key."""
        self._entries.clear()
        self._loading.clear()

    async def close(self) -> None:
        """Cancel the loads under way, and with them whoever still waits; return when they have ended."""
        for task in self._load_tasks:
            task.cancel()
        if self._load_tasks:
            await asyncio.wait(self._load_tasks)

    def _start_load(self, key: K) -> asyncio.Task[V]:
        # The value may be as old as the beginning of its load, so that is where its time starts.
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
        self._entries.pop(key, None)
        self._entries[key] = (expires_at, value)
        if len(self._entries) > self._max_size:
            # The oldest load is the first to lapse anyway.
            del self._entries[next(iter(self._entries))]
