"""The connections of one process to one database: opened when wanted, lent one at a time, replaced when broken."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from app.domain.refusals import StoreUnavailable
from app.store.records import database
from app.store.records.rows import Row

ACQUIRE_SECONDS = 15.0
"""How long a caller waits for a connection while others have them all."""

MAX_TRIES = 3
"""What collides with other transactions is repeated; a third collision in a row is more than chance."""

Result = TypeVar("Result")


class TransactionConflict(Exception):
    """Another transaction stood in the way and this one was undone: repeat it.

    Its text is the driver's, which may quote what was to be stored: not for a client and not for a log.
    """


class LockWaitTimeout(StoreUnavailable):
    """Another transaction has held a row for longer than a statement waits."""


class InUse(Exception):
    """Another transaction is about to use what the callers of this one chose. It had no effect: try again later."""


class MessageIdInUse(InUse):
    """A message id of a draft whose queue looks for duplicates."""


class AttemptInUse(InUse):
    """An attempt: its first try is under way."""


class PooledSession(database.SqlSession, Protocol):
    """One connection while it is lent to somebody."""

    @property
    def is_usable(self) -> bool:
        """Whether the next one may use it: nothing is under way on it and the other end is still there."""
        ...

    async def transact(self, work: database.Work[Result]) -> Result:
        """Run the work in one transaction, committed when it returns and undone when it raises."""
        ...

    async def close(self) -> None:
        """Say goodbye to the server."""
        ...

    def terminate(self) -> None:
        """Close the connection at once, whatever is under way; the server undoes what was not committed."""
        ...


AnySession = TypeVar("AnySession", bound=PooledSession)


class Pool(Generic[AnySession]):
    """`Database` over at most so many connections, of which the one used last is lent first."""

    def __init__(self, connect: Callable[[], Awaitable[AnySession]], max_connections: int) -> None:
        self._connect = connect
        self._slots = asyncio.Semaphore(max_connections)
        self._idle: list[AnySession] = []
        self._is_closed = False

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """The rows of one named statement, a transaction of its own."""
        return await self.run(lambda session: session.fetch(name, **values))

    async def change(self, name: str, /, **values: Any) -> int:
        """Run one named statement as a transaction of its own; how many rows it found to change."""
        return await self.run(lambda session: session.change(name, **values))

    async def transaction(self, work: database.Work[Result]) -> Result:
        """Run the work in one transaction, committed durably when it returns and undone when it raises."""
        return await self.run(lambda session: session.transact(work))

    async def run(self, work: Callable[[AnySession], Awaitable[Result]]) -> Result:
        """Do the work on a connection, again when it collides with another transaction."""
        tries = MAX_TRIES
        while True:
            tries -= 1
            session = await self._acquire()
            try:
                return await work(session)
            except TransactionConflict as conflict:
                if not tries:
                    raise StoreUnavailable("Other transactions kept standing in the way.") from conflict
            finally:
                # Kept if it is whole, and closed otherwise.
                self._release(session)

    async def close(self) -> None:
        """Let go of every connection; none may be lent out any more, and none is lent from now on."""
        self._is_closed = True
        while self._idle:
            session = self._idle.pop()
            if session.is_usable:
                await session.close()
            session.terminate()

    async def _acquire(self) -> AnySession:
        if self._is_closed:
            raise StoreUnavailable("The store is closed.")
        await self._acquire_slot()
        try:
            return await self._usable_session()
        except BaseException:
            self._slots.release()
            raise

    def _release(self, session: AnySession) -> None:
        self._slots.release()
        if session.is_usable:
            self._idle.append(session)
        else:
            session.terminate()

    async def _usable_session(self) -> AnySession:
        while self._idle:
            session = self._idle.pop()
            if session.is_usable:
                return session
            session.terminate()
        return await self._connect()

    async def _acquire_slot(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()  # at once, and without the price of a timeout
            return
        try:
            async with asyncio.timeout(ACQUIRE_SECONDS):
                await self._slots.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("Every connection to the database is in use.") from error
