"""Ways to a server on which things go wrong: late, silent, cut, or twice."""

from __future__ import annotations

import asyncio
import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Self

CHUNK = 65536
LENGTH = re.compile(rb"^content-length:\s*(\d+)", re.IGNORECASE | re.MULTILINE)
CONNECTION = re.compile(rb"^connection:[^\r]*\r\n", re.IGNORECASE | re.MULTILINE)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Way(ABC):
    """Listens on a port of its own and leads to another one of this machine, which may change."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Listen until the block ends; then every connection is cut."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self
            server.close()
            self.cut()

    def cut(self) -> None:
        """Cut every connection that is open now."""
        for writer in list(self._open):
            writer.transport.abort()

    @abstractmethod
    async def carry(self, client: Streams) -> None:
        """Treat one connection until it ends."""

    async def connect(self) -> Streams:
        """A connection to the target."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.target)
        self._open.add(writer)
        return reader, writer

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self.carry((reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()  # one side has gone, so the other one goes too
        finally:
            self._open.discard(writer)
            writer.close()


class Wire(Way):
    """Passes bytes on. `delay` seconds late; not at all while it is silent; not to anybody new while `is_closed`."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.delay = 0.0
        self._speaks = asyncio.Event()
        self._speaks.set()
        self.is_closed = False
        self.losses = 0
        self._yet_to_ask = 0
        self._loses: Callable[[bytes], bool] | None = None
        self._holds: Callable[[bytes], bool] | None = None
        self.has_held = False

    def lose_answer_to(self, matches: Callable[[bytes], bool]) -> None:
        """Deliver the next bytes like these, swallow what is answered, and cut: the one who asked stays in doubt."""
        self._loses = matches

    def hold_answer_to(self, matches: Callable[[bytes], bool]) -> None:
        """Deliver the next bytes like these; once they are answered, fall silent. Then `has_held` is true."""
        self._holds = matches

    def fall_silent(self) -> None:
        """Take everything from now on and pass nothing on."""
        self._speaks.clear()

    def speak(self) -> None:
        """Pass on what was held back, and all that follows."""
        self._speaks.set()

    def all_have_asked(self) -> bool:
        """Whether something was passed on over every connection that is open."""
        return self._yet_to_ask == 0

    async def carry(self, client: Streams) -> None:
        if self.is_closed:
            raise ConnectionRefusedError
        server = await self.connect()
        doomed, awaited = asyncio.Event(), asyncio.Event()
        ways = (self._there(client[0], server[1], doomed, awaited), self._back(server[0], client[1], doomed, awaited))
        tasks = [asyncio.create_task(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._open.discard(server[1])
            server[1].close()

    async def _there(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        doomed: asyncio.Event,
        awaited: asyncio.Event,
    ) -> None:
        self._yet_to_ask += 1
        has_asked = False
        try:
            while piece := await source.read(CHUNK):
                if self._loses and self._loses(piece):
                    self._loses = None
                    doomed.set()
                if self._holds and self._holds(piece):
                    self._holds = None
                    awaited.set()
                await self._pass(piece, target)
                self._yet_to_ask -= not has_asked
                has_asked = True
        finally:
            self._yet_to_ask -= not has_asked

    async def _back(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        doomed: asyncio.Event,
        awaited: asyncio.Event,
    ) -> None:
        while piece := await source.read(CHUNK):
            if awaited.is_set():
                awaited.clear()
                self.fall_silent()
                self.has_held = True
            if doomed.is_set():
                self.losses += 1
                target.transport.abort()
                return
            await self._pass(piece, target)

    async def _pass(self, piece: bytes, target: asyncio.StreamWriter) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._speaks.wait()
        target.write(piece)
        await target.drain()


class Doubler(Way):
    """Sends every HTTP request twice at once and answers with what comes first."""

    requests = 0

    async def carry(self, client: Streams) -> None:
        reader, writer = client
        head = await reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
        request = CONNECTION.sub(b"", head)[:-2] + b"Connection: close\r\n\r\n" + body
        self.requests += 1
        answers = [asyncio.create_task(self._ask(request)) for _ in range(2)]
        done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        writer.write(done.pop().result())
        await writer.drain()
        writer.close()
        await asyncio.wait(answers)

    async def _ask(self, request: bytes) -> bytes:
        reader, writer = await self.connect()
        writer.write(request)
        answer = await reader.read(-1)
        self._open.discard(writer)
        writer.close()
        return answer
