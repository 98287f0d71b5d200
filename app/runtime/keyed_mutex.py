"""A mutex for each key: callers of one key run one at a time, and callers of other keys do not wait."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager


class _Mutex:
    """The mutex of one key. `callers` counts the holder and those that wait."""

    __slots__ = ("callers", "lock")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.callers = 0


class KeyedMutex:
    """Lets the callers of each key run one at a time, in order of arrival.

    It admits at most `max_callers` of a key, the holder included. A caller waits at most `max_seconds` for each key. Any
    other caller gets a `busy_error`; it had no effect.
    """

    def __init__(self, max_callers: int, max_seconds: float, busy_error: Callable[[], Exception]) -> None:
        self._max_callers = max_callers
        self._max_seconds = max_seconds
        self._busy_error = busy_error
        self._mutexes: dict[str, _Mutex] = {}

    @asynccontextmanager
    async def hold(self, keys: Iterable[str]) -> AsyncGenerator[None]:
        """Hold the mutexes of these keys. Raises a `busy_error`.

        Mutexes are acquired in the order of their keys, so that no two callers wait for each other.
        """
        held: list[str] = []
        try:
            for key in sorted(set(keys)):
                await self._acquire(key)
                held.append(key)
            yield
        finally:
            for key in held:
                self._mutexes[key].lock.release()
                self._leave(key)

    async def _acquire(self, key: str) -> None:
        mutex = self._mutexes.setdefault(key, _Mutex())
        if mutex.callers == self._max_callers:
            raise self._busy_error()
        mutex.callers += 1
        try:
            await self._lock(mutex)
        except BaseException:
            self._leave(key)
            raise

    async def _lock(self, mutex: _Mutex) -> None:
        if not mutex.lock.locked():
            await mutex.lock.acquire()  # at once, without the cost of a timeout
            return
        try:
            async with asyncio.timeout(self._max_seconds):
                await mutex.lock.acquire()
        except TimeoutError as error:
            raise self._busy_error() from error

    def _leave(self, key: str) -> None:
        mutex = self._mutexes[key]
        mutex.callers -= 1
        if not mutex.callers:
            del self._mutexes[key]
