"""A service that answers over real sockets, and one connection to it, spoken to byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from app.api.bodies import Receive, Scope, Send
from app.cli.connection import Connection

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nX-Request-Id: mine\r\n\r\n"


class Service:
    """An application that answers a request with its path once its body is whole; some paths do otherwise."""

    def __init__(self) -> None:
        self.may_read = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.begun = asyncio.Event()
        self.gone = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.set()
        if scope["path"] == "/late":
            await self.may_read.wait()
        if scope["path"] != "/early":
            while (event := await receive()).get("more_body", False):
                pass
            if event["type"] == "http.disconnect":
                self.gone.set()
                return
        if scope["path"] == "/wait":
            await self.may_answer.wait()
        body = scope["path"].encode()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Client:
    """One connection to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, content: bytes) -> None:
        self._writer.write(content)

    async def hear(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer."""
        async with asyncio.timeout(10):
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
        async with asyncio.timeout(10):
            return await self._reader.read(1) == b""

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def connected(service: Service, kind: type[Connection]) -> AsyncIterator[Client]:
    """A client of the service, whose connections are of this kind."""
    config = uvicorn.Config(service, http=kind, ws="none", lifespan="off", log_config=None, timeout_keep_alive=60)
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(lambda: kind(config, state, {}), "127.0.0.1", 0)
    client = Client(*await asyncio.open_connection(*server.sockets[0].getsockname()))
    yield client
    await client.close()
    server.close()
    await server.wait_closed()
