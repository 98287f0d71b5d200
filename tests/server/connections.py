"""A server over real sockets, and a client that sends bytes as they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from app.http.asgi import ASGI, Receive, Scope, Send
from app.server.connection import Connection
from tests.servers import TIMEOUT_SECONDS
from tests.virtual_clock import VirtualClock, VirtualTimer

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nX-Request-Id: mine\r\n\r\n"


class EchoApplication:
    """An application that answers a request with its path after its body; some paths behave differently.

    `/echo` answers with the body, `/fields` with the names of the header fields. `/early` and `/begun` answer without
    the body; `/begun` sends half of its answer and then waits.
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
        if scope["path"] not in ("/early", "/begun"):
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
        if scope["path"] == "/begun":
            await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
            await self.may_answer.wait()
        await send({"type": "http.response.body", "body": body})


class ReceivedBytes:
    """The connections and bytes that the server has received; each change sets `changed`.

    `paused` are the pauses of connections whose clients do not take their answers, `lost` the connections that have ended.
    """

    def __init__(self) -> None:
        self.bytes = self.paused = self.lost = 0
        self.transports: list[asyncio.Transport] = []
        self.changed = asyncio.Event()

    async def until(self, is_reached: Callable[[], bool]) -> None:
        """Return when a change has made this true."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not is_reached():
                self.changed.clear()
                await self.changed.wait()


class VirtualTimeLoop:
    """An event loop with the time of a virtual clock."""

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
    """A connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: ReceivedBytes) -> None:
        self._reader = reader
        self._writer = writer
        self._received = received
        self._sent = 0

    def send(self, content: bytes) -> None:
        self._writer.write(content)
        self._sent += len(content)

    async def send_and_wait(self, content: bytes) -> None:
        """Send these bytes, and return when the server has received them."""
        self.send(content)
        await self._received.until(lambda: self._received.bytes >= self._sent)

    async def read_response(self) -> tuple[int, dict[str, str], bytes]:
        """Return the next answer."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            status, headers = await self.read_head()
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return status, headers, body

    async def read_head(self) -> tuple[int, dict[str, str]]:
        """Return the status and the headers of the next answer."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        return int(lines[0].split()[1]), dict(line.split(": ", 1) for line in lines[1:] if line)

    async def read_rest(self) -> bytes:
        """Return what the server sends before it closes the connection."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self._reader.read()

    async def problem(self) -> tuple[int, str]:
        """Return status and code of the next answer. It must be a problem document, and the last answer."""
        status, headers, body = await self.read_response()
        document: dict[str, Any] = json.loads(body)
        assert headers["content-type"] == "application/problem+json"
        assert headers["connection"] == "close"
        assert (document["status"], document["tracking_id"]) == (status, headers["x-request-id"])
        assert await self.is_closed()
        return status, document["code"]

    async def is_closed(self) -> bool:
        """Whether the server sends nothing more."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self._reader.read(1) == b""

    async def is_reset(self) -> bool:
        """Whether the connection ends although the server has not read everything."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            try:
                await self._writer.drain()
            except ConnectionError:
                return True
        return False

    @property
    def received_bytes(self) -> int:
        """The bytes that the server has received."""
        return self._received.bytes

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@asynccontextmanager
async def open_client(
    application: ASGI, kind: type[Connection], clock: VirtualClock | None = None
) -> AsyncIterator[Client]:
    """Open a server with connections of this class, and yield a client. Timers use the clock, if one is given."""
    async with open_server(application, kind, clock) as (port, received):
        client = Client(*await asyncio.open_connection("127.0.0.1", port), received)
        await received.changed.wait()
        yield client
        await client.close()


@asynccontextmanager
async def open_server(
    application: ASGI, kind: type[Connection], clock: VirtualClock | None = None, limit: int | None = None
) -> AsyncIterator[tuple[int, ReceivedBytes]]:
    """Open a server with this connection limit. Yield its port and its received bytes."""
    config = uvicorn.Config(
        application,
        interface="asgi3",
        http=kind,
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=60,
        limit_concurrency=limit,
    )
    state, received = ServerState(), ReceivedBytes()

    class Observed(kind):
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            received.transports.append(transport)
            received.changed.set()

        def pause_writing(self) -> None:
            super().pause_writing()
            received.paused += 1
            received.changed.set()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            received.lost += 1
            received.changed.set()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            received.bytes += len(data)
            received.changed.set()

    loop = asyncio.get_running_loop()
    timed = loop if clock is None else VirtualTimeLoop(loop, clock)
    server = await loop.create_server(lambda: Observed(config, state, {}, timed), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], received
    server.close()
    for connection in [*state.connections]:  # one that has stopped reading does not notice that its client left
        connection.transport.close()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while state.connections:
            received.changed.clear()
            await received.changed.wait()
    await server.wait_closed()  # since Python 3.12 this waits for the connections too
