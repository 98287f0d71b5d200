"""The lock on a database: held by any number of processes that share Redis, or by one process without Redis."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf

from app.domain.refusals import StoreUnavailable
from app.runtime.clock import Clock
from app.store.in_use import DatabaseInUse
from app.store.pooled.pool import PooledSession, TransactionConflict, close
from app.store.shared.lock_versions import start_lock_version_unless_served

NO_REDIS_REASON = (
    "Without Redis, processes do not learn of each other's lock renewals and do not wake each other's receivers: "
    "give all of them the same PEEKLOCK_REDIS_URL, or run only one."
)
REFUSALS: Mapping[str, str] = {
    "acquire_exclusive": f"Another process serves this database, and this one has no Redis. {NO_REDIS_REASON}",
    "acquire_shared": f"A process without Redis serves this database. {NO_REDIS_REASON}",
}

VERIFIED_SECONDS = 5.0
"""How long an answer of the server on the lock's connection shows that the lock is held."""

RETAKE_DELAYS = (0.01, 0.05, 0.2, 0.5)
"""Seconds before each retry to take the lock again. The server may still end the connection that this process has closed."""


class AdvisoryLock:
    """A lock in the database, held by a connection of its own for as long as the process serves.

    The lock ends with the process, even after a crash. If only the connection is lost, `ensure_held` takes the lock
    again. If another process has taken it first, the store refuses every request until that process ends.

    A connection may be lost without an error, for example when the machine of the server fails. So `ensure_held` queries the
    server on this connection again after `VERIFIED_SECONDS`. Requests that wait for the answer share it, or its failure.
    Otherwise each of them in turn would wait for a server that does not answer.
    """

    def __init__(self, connect: Callable[[], Awaitable[PooledSession]], clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._verified_at = -inf
        self._statement: str | None = None
        self._session: PooledSession | None = None
        self._verification: asyncio.Task[None] | None = None

    async def acquire(self, statement: str) -> None:
        """Take the lock with the statement of this name and hold it. Refuses with `DatabaseInUse`."""
        await self._acquire(statement)
        self._statement = statement

    async def ensure_held(self) -> None:
        """Make sure that the lock is still held. Raises `StoreUnavailable` if another process has it now.

        The pool awaits this before each use of a connection. Cancelling one caller does not affect the others.
        """
        if self._statement is None or self._is_verified:
            return
        if self._verification is None:
            self._verification = asyncio.create_task(
                self._verify(self._statement), name="verification of the database's lock"
            )
            self._verification.add_done_callback(self._end_verification)
        await asyncio.shield(self._verification)

    async def release(self) -> None:
        """Release the lock."""
        self._statement = None
        if self._verification is not None:
            self._verification.cancel()
            await asyncio.wait({self._verification})
        session, self._session = self._session, None
        if session is not None:
            await close(session)

    def disconnect(self) -> None:
        """Close the connection of the lock, if there is one. `ensure_held` takes the lock again."""
        if self._session is not None:
            self._session.terminate()
            self._session = None

    @property
    def _is_verified(self) -> bool:
        """Whether the lock's connection is open, and the server has answered on it lately."""
        is_open = self._session is not None and self._session.is_usable
        return is_open and self._clock.monotonic() < self._verified_at + VERIFIED_SECONDS

    def _end_verification(self, verification: asyncio.Task[None]) -> None:
        self._verification = None
        if not verification.cancelled():
            # Mark the error as retrieved, even if all callers have gone.
            verification.exception()

    async def _verify(self, statement: str) -> None:
        """Query the server on the lock's connection. If the connection is lost, take the lock again."""
        if self._session is not None and self._session.is_usable:
            try:
                await self._ask(self._session, "now")
            except StoreUnavailable:
                self.disconnect()
            else:
                return
        await self._retake(statement)

    async def _retake(self, statement: str) -> None:
        for pause in RETAKE_DELAYS:
            try:
                return await self._acquire(statement)
            except DatabaseInUse:
                await self._clock.sleep(pause)
        try:
            await self._acquire(statement)
        except DatabaseInUse as error:
            raise StoreUnavailable(str(error)) from error

    async def _acquire(self, statement: str) -> None:
        self.disconnect()
        self._session = await self._connect()
        try:
            if statement == "acquire_shared":
                await start_lock_version_unless_served(self._session)
            is_acquired = await self._ask(self._session, statement)
        except TransactionConflict as conflict:
            self.disconnect()
            raise StoreUnavailable("Another transaction changes the queues.") from conflict
        except BaseException:
            self.disconnect()
            raise
        if not is_acquired:
            self.disconnect()
            raise DatabaseInUse(REFUSALS[statement])

    async def _ask(self, session: PooledSession, statement: str) -> object:
        """Return the only value of a statement. The lock counts as verified from before the statement was sent."""
        asked_at = self._clock.monotonic()
        ((answer,),) = await session.fetch(statement)
        self._verified_at = asked_at
        return answer
