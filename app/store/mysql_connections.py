"""The connections to one MariaDB or MySQL database: opened when wanted, lent one at a time, replaced when broken."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from asyncmy.constants.CLIENT import FOUND_ROWS
from sqlalchemy.engine import make_url

from app.domain.refusals import StoreUnavailable
from app.store import records
from app.store.mysql_session import Collision, Session, Wire, translated
from app.store.mysql_text import templates
from app.store.rows import Row

Result = TypeVar("Result")

CONNECT_SECONDS = 5
TURN_SECONDS = 15.0
"""How long a caller waits for a connection while others have them all."""

MOST_TRIES = 3
"""What collides with other transactions is repeated; a third collision in a row is more than chance."""

TLS_OPTIONS = frozenset({"ssl_ca", "ssl_capath", "ssl_cert", "ssl_key", "ssl_cipher", "ssl_check_hostname"})


class Connections:
    """At most so many connections to one database, shared by everybody in this process."""

    def __init__(self, url: str, most: int) -> None:
        self._options = options(url)
        self._statements = templates()
        self._turns = asyncio.Semaphore(most)
        self._idle: list[Session] = []

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """The rows of one named statement, a transaction of its own."""
        return await self.repeat(lambda session: session.fetch(name, **values))

    async def change(self, name: str, /, **values: Any) -> int:
        """Run one named statement as a transaction of its own; how many rows it found to change."""
        return await self.repeat(lambda session: session.change(name, **values))

    async def transaction(self, work: records.Work[Result]) -> Result:
        """Run the work in one transaction, committed durably when it returns and undone when it raises."""
        return await self.repeat(lambda session: session.transact(work))

    async def repeat(self, work: Callable[[Session], Awaitable[Result]]) -> Result:
        """Do the work on a connection, again when it collides with another transaction."""
        tries = MOST_TRIES
        while True:
            tries -= 1
            try:
                async with self.lend() as session:
                    return await work(session)
            except Collision as collision:
                if not tries:
                    raise StoreUnavailable(f"Other transactions kept standing in the way: {collision}.") from collision

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[Session, None]:
        """A connection for one piece of work; afterwards it is kept if it is whole and closed otherwise."""
        await self._wait_for_turn()
        try:
            session = await self._whole()
            try:
                yield session
            finally:
                if session.is_whole:
                    self._idle.append(session)
                else:
                    session.cut()
        finally:
            self._turns.release()

    async def open(self) -> Session:
        """A new connection that is nobody's yet."""
        wire = Wire(**self._options)
        with translated():
            await wire.connect()
        session = Session(wire, self._statements)
        try:
            await session.set_up()
        except BaseException:
            session.cut()
            raise
        return session

    async def close(self) -> None:
        """Let go of every connection; none may be lent out any more."""
        while self._idle:
            session = self._idle.pop()
            if session.is_whole:
                await session.leave()
            session.cut()

    async def _whole(self) -> Session:
        while self._idle:
            session = self._idle.pop()
            if session.is_whole:
                return session
            session.cut()
        return await self.open()

    async def _wait_for_turn(self) -> None:
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turns.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("Every connection to the database is in use.") from error


def options(url: str) -> Mapping[str, Any]:
    """What the driver wants to know to connect, from a URL `mysql://user:password@host:port/database`.

    Options after `?` are those that the migrations' driver takes as well: `unix_socket` and `ssl_ca`, `ssl_cert` and
    so on. Refuses with `ValueError` what it does not know, since an option that is not heeded is worse than none.
    """
    address = make_url(url)
    more = {key: str(value) for key, value in address.query.items()}
    tls: dict[str, Any] = {key.removeprefix("ssl_"): more.pop(key) for key in TLS_OPTIONS & more.keys()}
    if "check_hostname" in tls:
        tls["check_hostname"] = tls["check_hostname"].lower() == "true"
    socket = more.pop("unix_socket", None)
    if more:
        raise ValueError(f"The database URL has an option that is not known here: {', '.join(sorted(more))}.")
    return {
        "host": address.host,
        "port": address.port or 0,
        "user": address.username,
        "password": address.password or "",
        "database": address.database,
        "unix_socket": socket,
        "ssl": tls or None,
        "connect_timeout": CONNECT_SECONDS,
        "autocommit": True,
        # An UPDATE that changes nothing still counts the rows it found.
        "client_flag": FOUND_ROWS,
        "program_name": "peeklock",
    }
