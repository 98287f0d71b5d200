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


class Proxy(ABC):
    """Listens on a port of its own and leads to another one of this machine, which may change."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

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
        for writer in list(self._writers):
            writer.transport.abort()

    @abstractmethod
    async def handle(self, client: Streams) -> None:
        """Treat one connection until it ends."""

    async def connect(self) -> Streams:
        """A connection to the target."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers.add(writer)
        return reader, writer

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self.handle((reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()  # one side has gone, so the other one goes too
        finally:
            self._writers.discard(writer)
            writer.close()


class FaultyProxy(Proxy):
    """Passes bytes on. `delay` seconds late; not at all while it is silent; not to new connections while
    `is_closed`."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.delay = 0.0
        self._forwarding = asyncio.Event()
        self._forwarding.set()
        self.is_closed = False
        self.drops = 0
        self._without_request: set[asyncio.StreamReader] = set()
        self._drop_match: Callable[[bytes], bool] | None = None
        self._delay_match: Callable[[bytes], bool] | None = None
        self.has_delayed = False

    def drop_answer_to(self, matches: Callable[[bytes], bool]) -> None:
        """Deliver the next bytes like these, swallow what is answered, and cut: the sender of the request stays in
        doubt."""
        self._drop_match = matches

    def delay_answer_to(self, matches: Callable[[bytes], bool]) -> None:
        """Deliver the next bytes like these; once they are answered, fall silent. Then `has_delayed` is true."""
        self._delay_match = matches

    def pause(self) -> None:
        """Take everything from now on and pass nothing on."""
        self._forwarding.clear()

    def resume(self) -> None:
        """Pass on what was held back, and all that follows."""
        self._forwarding.set()

    def all_have_asked(self) -> bool:
        """Whether something was passed on over every connection that was accepted and has not ended."""
        return not self._without_request

    async def handle(self, client: Streams) -> None:
        if self.is_closed:
            raise ConnectionRefusedError
        # Before the connection is open: it leads to this target, even if another one is set meanwhile.
        self._without_request.add(client[0])
        try:
            await self._forward(client, await self.connect())
        finally:
            self._without_request.discard(client[0])

    async def _forward(self, client: Streams, server: Streams) -> None:
        drop_answer, delay_answer = asyncio.Event(), asyncio.Event()
        ways = (
            self._forward_requests(client[0], server[1], drop_answer, delay_answer),
            self._forward_answers(server[0], client[1], drop_answer, delay_answer),
        )
        tasks = [asyncio.create_task(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._writers.discard(server[1])
            server[1].close()

    async def _forward_requests(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        drop_answer: asyncio.Event,
        delay_answer: asyncio.Event,
    ) -> None:
        while chunk := await source.read(CHUNK):
            if self._drop_match and self._drop_match(chunk):
                self._drop_match = None
                drop_answer.set()
            if self._delay_match and self._delay_match(chunk):
                self._delay_match = None
                delay_answer.set()
            await self._forward_chunk(chunk, target)
            self._without_request.discard(source)

    async def _forward_answers(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        drop_answer: asyncio.Event,
        delay_answer: asyncio.Event,
    ) -> None:
        while chunk := await source.read(CHUNK):
            if delay_answer.is_set():
                delay_answer.clear()
                self.pause()
                self.has_delayed = True
            if drop_answer.is_set():
                self.drops += 1
                target.transport.abort()
                return
            await self._forward_chunk(chunk, target)

    async def _forward_chunk(self, chunk: bytes, target: asyncio.StreamWriter) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._forwarding.wait()
        target.write(chunk)
        await target.drain()


class DuplicatingProxy(Proxy):
    """Sends every HTTP request twice at once and answers with what comes first."""

    requests = 0

    async def handle(self, client: Streams) -> None:
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
        self._writers.discard(writer)
        writer.close()
        return answer
