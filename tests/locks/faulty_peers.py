"""Faulty peers: one that accepts connections and never answers, and one that forwards everything late."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Self

CHUNK = 65536


class Peer(ABC):
    """Listens on its own port while the block of `open` runs; `connections` counts its clients."""

    def __init__(self) -> None:
        self.connections = 0
        self.url = ""
        self._serving: set[asyncio.Task[None] | None] = set()
        self._open: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Listen until the block ends; then every connection is closed."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield self
        server.close()
        for writer in self._open:
            writer.close()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._serving.add(asyncio.current_task())
        self._open.append(writer)
        await self.serve(reader, writer)

    @abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""


class BlackHole(Peer):
    """Reads everything and never answers."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(CHUNK):
                pass


class DelayingProxy(Peer):
    """A proxy that delays every piece by `seconds` in each direction."""

    def __init__(self, port: int, seconds: float) -> None:
        super().__init__()
        self._port = port
        self.seconds = seconds

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._forward(reader, back), self._forward(there, writer))

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await source.read(CHUNK):
                await asyncio.sleep(self.seconds)
                target.write(piece)
        target.close()
