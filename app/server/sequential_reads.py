"""Reads one request at a time: requests sent ahead stay bytes until the requests before them are answered.

uvicorn makes objects of every request in a read. For the smallest requests they take a hundred times the bytes. A body in many
small chunks is read in parts, so that other connections have their turn in between.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.server.buffered_transport import BufferedTransport

_MIN_READ_BYTES = 1 << 10
"""Minimum size of a piece. Few requests fit into it together, and most requests fit into it alone."""

_MAX_LINE_ENDS = 64
"""Maximum line ends in a larger piece. A request has at least two, so a large body with few is read in few pieces."""


_MAX_CHUNKS_PER_TURN = 128
"""Chunks that a connection reads before other connections have their turn. One read may hold 40,000 chunks, and each costs
as much as 1 KiB of content."""


class SequentialReads(HttpToolsProtocol):
    """A connection that stops reading, and keeps the rest of its last read, while a request waits for an earlier one.

    After `_MAX_CHUNKS_PER_TURN` it does the same until the next iteration of the event loop. Its answers go through a
    `BufferedTransport`.
    """

    _buffered_transport: BufferedTransport
    _unread = b""
    _chunks_in_turn = 0
    _next_turn: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        self._buffered_transport = BufferedTransport(transport, self.loop.time)
        super().connection_made(self._buffered_transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        is_one_piece = len(data) <= _MIN_READ_BYTES or data.count(b"\n") < _MAX_LINE_ENDS
        if self._unread or self.pipeline or not is_one_piece:
            self._unread += data
            if self._next_turn is None:
                self._feed_unread()
        else:
            self.feed(data)

    def feed(self, data: bytes) -> None:
        """Read a piece of the client's bytes."""
        raise NotImplementedError

    def on_chunk_header(self) -> None:
        """A chunk of a body begins."""
        self._chunks_in_turn += 1

    def on_response_complete(self) -> None:
        """An answer has ended; read the next request."""
        self._buffered_transport.end_response()
        super().on_response_complete()
        if self._unread and self._next_turn is None and not self.transport.is_closing():
            self._feed_unread()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._unread = b""
        if self._next_turn is not None:
            self._next_turn.cancel()
        super().connection_lost(exc)

    def _feed_unread(self) -> None:
        data, start = self._unread, 0
        self._chunks_in_turn = 0
        while start < len(data) and not self.pipeline and self._chunks_in_turn < _MAX_CHUNKS_PER_TURN:
            end = _end_of_read(data, start)
            self.feed(data[start:end])
            start = end
        self._unread = data[start:]
        if self._unread:
            self._buffered_transport.hold_reading()
            if not self.pipeline:
                self._next_turn = self.loop.call_soon(self._take_turn)
        else:
            self._buffered_transport.release_reading()

    def _take_turn(self) -> None:
        self._next_turn = None
        if not self.transport.is_closing():
            self._feed_unread()


def _end_of_read(data: bytes, start: int) -> int:
    end = start
    for _ in range(_MAX_LINE_ENDS):
        end = data.find(b"\n", end) + 1
        if not end:
            return len(data)
    return max(end, start + _MIN_READ_BYTES)
