"""The lock on a database: held by any number of processes that share Redis, or by one process without Redis."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from app.domain.refusals import StoreUnavailable
from app.store.in_use import DatabaseInUse
from app.store.server.pool import PooledSession, close

NO_REDIS_REASON = (
    "Without Redis, processes do not learn of each other's lock renewals and do not wake each other's receivers: "
    "give all of them the same PEEKLOCK_REDIS_URL, or run only one."
)
REFUSALS: Mapping[str, str] = {
    "acquire_exclusive": f"Another process serves this database, and this one has no Redis. {NO_REDIS_REASON}",
    "acquire_shared": f"A process without Redis serves this database. {NO_REDIS_REASON}",
}


class AdvisoryLock:
    """A lock in the database, held by a connection of its own for as long as the process serves.

    The lock ends with the process, even after a crash. If only the connection is lost, `ensure_held` takes the lock
    again. If another process has taken it first, the store refuses every request until that process ends.
    """

    def __init__(self, connect: Callable[[], Awaitable[PooledSession]]) -> None:
        self._connect = connect
        self._statement: str | None = None
        self._session: PooledSession | None = None
        self._mutex = asyncio.Lock()

    async def acquire(self, statement: str) -> None:
        """Take the lock with the statement of this name and hold it. Refuses with `DatabaseInUse`."""
        async with self._mutex:
            await self._acquire(statement)
        self._statement = statement

    async def ensure_held(self) -> None:
        """Make sure that the lock is still held. Raises `StoreUnavailable` if another process has it now."""
        if self._statement is None or self._is_held:
            return
        async with self._mutex:
            if not self._is_held:
                try:
                    await self._acquire(self._statement)
                except DatabaseInUse as error:
                    raise StoreUnavailable(str(error)) from error

    async def release(self) -> None:
        """Release the lock."""
        self._statement = None
        session, self._session = self._session, None
        if session is not None:
            await close(session)

    def disconnect(self) -> None:
        """Close the connection of the lock, if there is one. `ensure_held` takes the lock again."""
        if self._session is not None:
            self._session.terminate()
            self._session = None

    @property
    def _is_held(self) -> bool:
        return self._session is not None and self._session.is_usable

    async def _acquire(self, statement: str) -> None:
        self.disconnect()
        self._session = await self._connect()
        try:
            ((is_acquired,),) = await self._session.fetch(statement)
        except BaseException:
            self.disconnect()
            raise
        if not is_acquired:
            self.disconnect()
            raise DatabaseInUse(REFUSALS[statement])
