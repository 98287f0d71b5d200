"""The connections of one process to one database: opened on demand, lent to one caller each, replaced if broken."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import structlog

from app.domain.refusals import StoreUnavailable
from app.store.shared import database
from app.store.shared.rows import Row

log = structlog.get_logger("peeklock.store")

ACQUIRE_SECONDS = 15.0
"""How long a caller waits while all connections are lent."""

MAX_TRIES = 3
"""A transaction that collides with another one is repeated. A third collision in a row is more than chance."""

Result = TypeVar("Result")


class TransactionConflict(Exception):
    """Another transaction collided with this one, which was undone: repeat it.

    The text is the driver's and may quote values of the statement. Show it to no client and write it to no log.
    """


class InUse(Exception):
    """Another transaction is about to use the same id or key. The statement had no effect: try again later."""


class MessageIdInUse(InUse):
    """The message id of a draft whose queue checks for duplicates."""


class AttemptInUse(InUse):
    """An attempt whose first try is still running."""


class PooledSession(database.SqlSession, Protocol):
    """One connection while a caller uses it."""

    @property
    def is_usable(self) -> bool:
        """Return whether another caller may use it: no statement is running on it and the server is still connected."""
        ...

    async def begin(self) -> None:
        """Begin a transaction."""
        ...

    async def commit(self) -> Any:
        """Commit the transaction durably, unless it has ended."""
        ...

    async def rollback(self) -> None:
        """Undo the transaction, unless it has ended or the server cannot be reached."""
        ...

    async def close(self) -> None:
        """Close the connection with the protocol's goodbye."""
        ...

    def terminate(self) -> None:
        """Close the connection at once, even during a statement. The server undoes what was not committed."""
        ...


AnySession = TypeVar("AnySession", bound=PooledSession)


async def close(session: PooledSession) -> None:
    """Close a connection: with the protocol's goodbye, if the server still hears it."""
    try:
        if session.is_usable:
            await session.close()
    except StoreUnavailable:
        log.info("a connection to the database ended before it was closed", exc_info=True)
    finally:
        session.terminate()


def _ignore(_error: database.NotWritable) -> None:
    """Do nothing more: the pool raises the error."""


class Pool(Generic[AnySession]):
    """`Database` over at most `max_connections` connections. The one used last is lent first.

    `check` is awaited before each use, and refuses with `StoreUnavailable`.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[AnySession]],
        max_connections: int,
        acquire_seconds: float = ACQUIRE_SECONDS,
        *,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._connect = connect
        self._check = check
        self._acquire_seconds = acquire_seconds
        self._slots = asyncio.Semaphore(max_connections)
        self._idle: list[AnySession] = []
        self._lent: set[AnySession] = set()
        self._discarded: set[AnySession] = set()
        self._is_closed = False
        self.on_refused: Callable[[database.NotWritable], None] = _ignore
        """Receives each error that says that the database accepts no writes."""

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """Return the rows of one named statement, which is a transaction of its own."""
        return await self.run(lambda session: session.fetch(name, **values))

    async def change(self, name: str, /, **values: Any) -> int:
        """Run one named statement as a transaction of its own. Return how many rows it matched."""
        return await self.run(lambda session: session.change(name, **values))

    async def transaction(self, work: Callable[[AnySession], Awaitable[Result]]) -> Result:
        """Run the work in one transaction. It is committed durably when the work returns and undone when it raises. The
        work may also commit it or roll it back."""

        async def transact(session: AnySession) -> Result:
            await session.begin()
            try:
                result = await work(session)
                await session.commit()
            except Exception:
                await session.rollback()
                raise
            return result

        return await self.run(transact)

    async def run(self, work: Callable[[AnySession], Awaitable[Result]]) -> Result:
        """Run the work on a connection. Repeat it when it collides with another transaction."""
        tries = MAX_TRIES
        while True:
            tries -= 1
            session = await self._acquire()
            self._lent.add(session)
            try:
                return await work(session)
            except TransactionConflict as conflict:
                if not tries:
                    raise StoreUnavailable("Other transactions kept colliding with this one.") from conflict
            except database.NotWritable as error:
                if not isinstance(error, database.DiskNotWritable):
                    session.terminate()
                    self.discard()
                self.on_refused(error)
                raise
            finally:
                # A usable connection is kept. Any other one is closed.
                self._release(session)

    def terminate(self) -> None:
        """Close all connections at once, also lent ones, because what they write to their server would be lost."""
        self.discard()
        for session in self._lent:
            session.terminate()

    def discard(self) -> None:
        """Close all connections, because their server accepts no writes any more, and another host may.

        Lent connections are closed when they are returned.
        """
        self._discarded |= self._lent
        while self._idle:
            self._idle.pop().terminate()

    async def close(self) -> None:
        """Close every connection. None may be lent any more, and none is lent from now on."""
        self._is_closed = True
        while self._idle:
            await close(self._idle.pop())

    async def _acquire(self) -> AnySession:
        if self._is_closed:
            raise database.StoreClosed
        if self._check is not None:
            await self._check()
        await self._acquire_slot()
        try:
            return await self._usable_session()
        except BaseException:
            self._slots.release()
            raise

    def _release(self, session: AnySession) -> None:
        self._slots.release()
        self._lent.discard(session)
        if session.is_usable and session not in self._discarded:
            self._idle.append(session)
        else:
            self._discarded.discard(session)
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
            await self._slots.acquire()  # at once, without the cost of a timeout
            return
        try:
            async with asyncio.timeout(self._acquire_seconds):
                await self._slots.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("Every connection to the database is in use.") from error
