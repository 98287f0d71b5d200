"""Reads one request at a time: requests sent ahead stay bytes until the requests before them are answered.

uvicorn makes objects of every request in a read. For the smallest requests they take a hundred times the bytes.
"""

from app.server.buffered_transport import BufferedWrites

MIN_READ_BYTES = 1 << 10
"""Minimum size of a piece. Few requests fit into it together, and most requests fit into it alone."""

MAX_LINE_ENDS = 64
"""Maximum line ends in a larger piece. A request has at least two, so a large body with few is read in few pieces."""


class SequentialReads(BufferedWrites):
    """A connection that stops reading, and keeps the rest of its last read, while a request waits for an earlier one."""

    _unread = b""

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._unread or self.pipeline or not _is_one_piece(data):
            self._unread += data
            self._feed_unread()
        else:
            self.feed(data)

    def feed(self, data: bytes) -> None:
        """Read a piece of the client's bytes."""
        raise NotImplementedError

    def on_response_complete(self) -> None:
        """An answer has ended; read the next request."""
        super().on_response_complete()
        if self._unread and not self.transport.is_closing():
            self._feed_unread()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._unread = b""
        super().connection_lost(exc)

    def _feed_unread(self) -> None:
        data, start = self._unread, 0
        while start < len(data) and not self.pipeline:
            end = _end_of_read(data, start)
            self.feed(data[start:end])
            start = end
        self._unread = data[start:]
        if self._unread:
            self._buffered_transport.hold_reading()
        else:
            self._buffered_transport.release_reading()


def _is_one_piece(data: bytes) -> bool:
    return len(data) <= MIN_READ_BYTES or data.count(b"\n") < MAX_LINE_ENDS


def _end_of_read(data: bytes, start: int) -> int:
    end = start
    for _ in range(MAX_LINE_ENDS):
        end = data.find(b"\n", end) + 1
        if not end:
            return len(data)
    return max(end, start + MIN_READ_BYTES)
