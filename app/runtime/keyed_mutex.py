"""A mutex for each key: callers of one key run one at a time, and callers of other keys do not wait."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager


class MutexBusyError(Exception):
    """Too many callers wait for the mutex, or this one has waited too long; it had no effect."""


class _Mutex:
    """The mutex of one key. `callers` counts the holder and those that wait."""

    __slots__ = ("callers", "lock")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.callers = 0


class KeyedMutex:
    """Lets the callers of each key run one at a time, in order of arrival.

    It admits at most `max_callers` of a key, the holder included. A caller waits at most `max_seconds` for each key.
    """

    def __init__(self, max_callers: int, max_seconds: float) -> None:
        self._max_callers = max_callers
        self._max_seconds = max_seconds
        self._mutexes: dict[str, _Mutex] = {}

    @asynccontextmanager
    async def hold(self, keys: Iterable[str]) -> AsyncGenerator[None]:
        """Hold the mutexes of these keys. Raises `MutexBusyError`.

        Mutexes are acquired in the order of their keys, so that no two callers wait for each other.
        """
        async with AsyncExitStack() as held:
            for key in sorted(set(keys)):
                await held.enter_async_context(self._hold_one(key))
            yield

    @asynccontextmanager
    async def _hold_one(self, key: str) -> AsyncGenerator[None]:
        mutex = self._mutexes.setdefault(key, _Mutex())
        if mutex.callers == self._max_callers:
            raise MutexBusyError
        mutex.callers += 1
        try:
            await self._acquire(mutex)
            try:
                yield
            finally:
                mutex.lock.release()
        finally:
            mutex.callers -= 1
            if not mutex.callers:
                del self._mutexes[key]

    async def _acquire(self, mutex: _Mutex) -> None:
        if not mutex.lock.locked():
            await mutex.lock.acquire()  # at once, without the cost of a timeout
            return
        try:
            async with asyncio.timeout(self._max_seconds):
                await mutex.lock.acquire()
        except TimeoutError as error:
            raise MutexBusyError from error
