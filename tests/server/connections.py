"""A service that answers over real sockets, and one connection to it, spoken to byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from app.api.bodies import ASGI, Receive, Scope, Send
from app.server.connection import Connection
from tests.clock import VirtualClock, VirtualTimer
from tests.servers import PATIENCE

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nX-Request-Id: mine\r\n\r\n"


class Service:
    """An application that answers a request with its path once its body is whole; some paths do otherwise.

    `/echo` answers with the body, `/fields` with the names of the header fields.
    """

    def __init__(self) -> None:
        self.may_read = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.begun = asyncio.Event()
        self.gone = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.set()
        if scope["path"] == "/late":
            await self.may_read.wait()
        content = b""
        if scope["path"] != "/early":
            while (event := await receive()).get("more_body", False):
                content += event["body"]
            if event["type"] == "http.disconnect":
                self.gone.set()
                return
            content += event["body"]
        if scope["path"] == "/wait":
            await self.may_answer.wait()
        answers = {"/echo": content, "/fields": b",".join(name for name, _ in scope["headers"])}
        body = answers.get(scope["path"], scope["path"].encode())
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Arrived:
    """That a client has come to the service, and how many of its bytes; `news` is set by either."""

    def __init__(self) -> None:
        self.bytes = 0
        self.news = asyncio.Event()


class Timed:
    """An event loop whose time is that of a clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: VirtualClock) -> None:
        self._loop = loop
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._clock.monotonic()

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> VirtualTimer:
        return self._clock.call_later(seconds, partial(callback, *arguments))


class Client:
    """One connection to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, arrived: Arrived) -> None:
        self._reader = reader
        self._writer = writer
        self._arrived = arrived
        self._said = 0

    def say(self, content: bytes) -> None:
        self._writer.write(content)
        self._said += len(content)

    async def tell(self, content: bytes) -> None:
        """Say it, and return when the service has taken it in."""
        self.say(content)
        async with asyncio.timeout(PATIENCE):
            while self._arrived.bytes < self._said:
                self._arrived.news.clear()
                await self._arrived.news.wait()

    async def hear(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer."""
        async with asyncio.timeout(PATIENCE):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def problem(self) -> tuple[int, str]:
        """Status and code of the next answer, which must be a problem document, and the end."""
        status, headers, body = await self.hear()
        document: dict[str, Any] = json.loads(body)
        assert headers["content-type"] == "application/problem+json"
        assert headers["connection"] == "close"
        assert (document["status"], document["tracking_id"]) == (status, headers["x-request-id"])
        assert await self.is_hung_up()
        return status, document["code"]

    async def is_hung_up(self) -> bool:
        """Whether nothing more comes."""
        async with asyncio.timeout(PATIENCE):
            return await self._reader.read(1) == b""

    async def is_cut(self) -> bool:
        """Whether the connection ends although the service has not read everything."""
        async with asyncio.timeout(PATIENCE):
            try:
                await self._writer.drain()
            except ConnectionError:
                return True
        return False

    @property
    def arrived(self) -> int:
        """Bytes that the service has taken in."""
        return self._arrived.bytes

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@asynccontextmanager
async def connected(service: ASGI, kind: type[Connection], clock: VirtualClock | None = None) -> AsyncIterator[Client]:
    """A client of the service, whose connections are of this kind and set their timers on the clock, if one is given."""
    async with listening(service, kind, clock) as (port, arrived):
        client = Client(*await asyncio.open_connection("127.0.0.1", port), arrived)
        await arrived.news.wait()
        yield client
        await client.close()


@asynccontextmanager
async def listening(
    service: ASGI, kind: type[Connection], clock: VirtualClock | None = None, limit: int | None = None
) -> AsyncIterator[tuple[int, Arrived]]:
    """The port of the service, which serves so many connections, and what has come to it."""
    config = uvicorn.Config(
        service, http=kind, ws="none", lifespan="off", log_config=None, timeout_keep_alive=60, limit_concurrency=limit
    )
    state, arrived = ServerState(), Arrived()

    class Observed(kind):
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            arrived.news.set()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            arrived.news.set()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            arrived.bytes += len(data)
            arrived.news.set()

    loop = asyncio.get_running_loop()
    timed = loop if clock is None else Timed(loop, clock)
    server = await loop.create_server(lambda: Observed(config, state, {}, timed), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], arrived
    server.close()
    await server.wait_closed()
    for connection in [*state.connections]:  # one that reads no more does not see its client go
        connection.transport.close()
    async with asyncio.timeout(PATIENCE):
        while state.connections:
            arrived.news.clear()
            await arrived.news.wait()
