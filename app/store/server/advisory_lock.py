"""The lock on a database: held by any number of processes that share Redis, or by one process without Redis."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf

from app.domain.refusals import StoreUnavailable
from app.runtime.clock import Clock
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

PROOF_SECONDS = 5.0
"""How long the server's last answer on the lock's connection proves that the lock is held."""

RETAKE_DELAYS = (0.01, 0.05, 0.2, 0.5)
"""Seconds before each retry to take the lock again. The server may still end the connection that this process has closed."""


class AdvisoryLock:
    """A lock in the database, held by a connection of its own for as long as the process serves.

    The lock ends with the process, even after a crash. If only the connection is lost, `ensure_held` takes the lock
    again. If another process has taken it first, the store refuses every request until that process ends.

    A connection may be lost without a sign, as when its server's machine is gone. So the server is asked on it again after
    `PROOF_SECONDS`. Requests that need the answer at the same time share it, a failure too. Otherwise each of them would wait
    for a server that is away, one after the other.
    """

    def __init__(self, connect: Callable[[], Awaitable[PooledSession]], clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._proven_at = -inf
        self._statement: str | None = None
        self._session: PooledSession | None = None
        self._proof: asyncio.Task[None] | None = None

    async def acquire(self, statement: str) -> None:
        """Take the lock with the statement of this name and hold it. Refuses with `DatabaseInUse`."""
        await self._acquire(statement)
        self._statement = statement

    async def ensure_held(self) -> None:
        """Make sure that the lock is still held. Raises `StoreUnavailable` if another process has it now.

        The pool awaits this before each use of a connection. A caller that is cancelled cancels it for no other one.
        """
        if self._statement is None or self._is_proven:
            return
        if self._proof is None:
            self._proof = asyncio.create_task(self._prove(self._statement), name="proof of the database's lock")
            self._proof.add_done_callback(self._end_proof)
        await asyncio.shield(self._proof)

    async def release(self) -> None:
        """Release the lock."""
        self._statement = None
        if self._proof is not None:
            self._proof.cancel()
            await asyncio.wait({self._proof})
        session, self._session = self._session, None
        if session is not None:
            await close(session)

    def disconnect(self) -> None:
        """Close the connection of the lock, if there is one. `ensure_held` takes the lock again."""
        if self._session is not None:
            self._session.terminate()
            self._session = None

    @property
    def _is_proven(self) -> bool:
        """Whether the server has answered on the lock's connection lately, which is still open."""
        is_open = self._session is not None and self._session.is_usable
        return is_open and self._clock.monotonic() < self._proven_at + PROOF_SECONDS

    def _end_proof(self, proof: asyncio.Task[None]) -> None:
        self._proof = None
        if not proof.cancelled():
            # Seen, also if all callers have gone.
            proof.exception()

    async def _prove(self, statement: str) -> None:
        """Ask the server on the lock's connection. If that is lost, take the lock again."""
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
            is_acquired = await self._ask(self._session, statement)
        except BaseException:
            self.disconnect()
            raise
        if not is_acquired:
            self.disconnect()
            raise DatabaseInUse(REFUSALS[statement])

    async def _ask(self, session: PooledSession, statement: str) -> object:
        """Return the only value of a statement. Its time counts from before it was sent."""
        asked_at = self._clock.monotonic()
        ((answer,),) = await session.fetch(statement)
        self._proven_at = asked_at
        return answer
