"""Who serves a database: any number of processes that share a lock store, or one that has none."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from app.domain.refusals import StoreUnavailable
from app.store.pool import Session

REASON = (
    "Without Redis processes neither hear of the locks that others renew nor wake each other's receivers: "
    "give all of them the same PEEKLOCK_REDIS_URL, or run only one."
)
REFUSALS: Mapping[str, str] = {
    "claim_alone": f"Another process serves this database, and this one has no Redis. {REASON}",
    "claim_shared": f"A process without Redis serves this database. {REASON}",
}


class DatabaseInUse(Exception):
    """Processes that do not know of each other would serve one database."""


class Presence:
    """A lock in the database, held by a connection of its own for as long as the process serves.

    It ends with the process, however that ends. When only the connection is lost, `keep` takes the lock again; should
    somebody else have been faster, the store answers nothing until they are gone.
    """

    def __init__(self, connect: Callable[[], Awaitable[Session]]) -> None:
        self._connect = connect
        self._claim: str | None = None
        self._holder: Session | None = None
        self._turn = asyncio.Lock()

    async def take(self, claim: str) -> None:
        """Hold the lock that the statement of this name takes. Refuses with `DatabaseInUse`."""
        async with self._turn:
            await self._take(claim)
        self._claim = claim

    async def keep(self) -> None:
        """Make sure that the lock is still held; raises `StoreUnavailable` when somebody else has it now."""
        if self._claim is None or self._is_held:
            return
        async with self._turn:
            if not self._is_held:
                try:
                    await self._take(self._claim)
                except DatabaseInUse as error:
                    raise StoreUnavailable(str(error)) from error

    async def leave(self) -> None:
        """Give the lock up."""
        self._claim = None
        if self._holder is not None and self._holder.is_whole:
            await self._holder.leave()
        self._drop()

    @property
    def _is_held(self) -> bool:
        return self._holder is not None and self._holder.is_whole

    async def _take(self, claim: str) -> None:
        self._drop()
        self._holder = await self._connect()
        try:
            ((is_taken,),) = await self._holder.fetch(claim)
        except BaseException:
            self._drop()
            raise
        if not is_taken:
            self._drop()
            raise DatabaseInUse(REFUSALS[claim])

    def _drop(self) -> None:
        if self._holder is not None:
            self._holder.cut()
            self._holder = None
