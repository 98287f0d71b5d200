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
        self, load: Callable[[K], Coroutine[Any, Any, V]], clock: Clock, *, keep_seconds: float, largest: int
    ) -> None:
        self._load = load
        self._clock = clock
        self._keep_seconds = keep_seconds
        self._largest = largest
        self._kept: dict[K, tuple[float, V]] = {}
        self._current: dict[K, asyncio.Task[V]] = {}
        self._loads: set[asyncio.Task[V]] = set()

    async def get(self, key: K) -> V:
        """The value of a key, never one read from its source longer ago than `keep_seconds`.

        A caller who is cancelled leaves the load to the others who wait for it.
        """
        kept = self._kept.get(key)
        if kept is not None and self._clock.monotonic() < kept[0]:
            return kept[1]
        return await asyncio.shield(self._current.get(key) or self._start(key))

    def forget(self, key: K) -> None:
        """Let the next `get` load again; a load under way answers those who wait, and is not remembered."""
        self._kept.pop(key, None)
        self._current.pop(key, None)

    def clear(self) -> None:
        """Forget every key."""
        self._kept.clear()
        self._current.clear()

    async def close(self) -> None:
        """Cancel the loads under way, and with them whoever still waits; return when they have ended."""
        for task in self._loads:
            task.cancel()
        if self._loads:
            await asyncio.wait(self._loads)

    def _start(self, key: K) -> asyncio.Task[V]:
        # The value may be as old as the beginning of its load, so that is where its time starts.
        lapses_at = self._clock.monotonic() + self._keep_seconds
        task = asyncio.get_running_loop().create_task(self._load(key))
        self._current[key] = task
        self._loads.add(task)
        task.add_done_callback(partial(self._loaded, key, lapses_at))
        return task

    def _loaded(self, key: K, lapses_at: float, task: asyncio.Task[V]) -> None:
        self._loads.discard(task)
        if self._current.get(key) is not task:
            return
        del self._current[key]
        if not task.cancelled() and task.exception() is None:
            self._keep(key, lapses_at, task.result())

    def _keep(self, key: K, lapses_at: float, value: V) -> None:
        self._kept.pop(key, None)
        self._kept[key] = (lapses_at, value)
        if len(self._kept) > self._largest:
            # The oldest load is the first to lapse anyway.
            del self._kept[next(iter(self._kept))]
