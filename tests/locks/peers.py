"""Peers that make trouble: one that takes connections and never answers, one that passes everything on late."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

CHUNK = 65536


class BlackHole:
    """A listener that never answers; `connections` counts who came."""

    def __init__(self) -> None:
        self.connections = 0
        self.url = ""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["BlackHole"]:
        """Listen while the block runs."""
        server = await asyncio.start_server(self._swallow, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _swallow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while await reader.read(CHUNK):
            pass
        writer.close()


class Delay:
    """A way to a server that holds every piece back for `seconds` in each direction."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port = port
        self.seconds = seconds
        self.url = ""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Delay"]:
        """Listen while the block runs."""
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._carry(reader, back), self._carry(there, writer))

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await source.read(CHUNK):
                await asyncio.sleep(self.seconds)
                target.write(piece)
        target.close()
