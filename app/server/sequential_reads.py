"""Reads one request at a time: what a client sends ahead stays bytes until the requests before it are answered.

uvicorn makes objects of every request in a read, which take a hundred times the size of the smallest ones.
"""

from app.server.buffered_transport import BufferedWrites

MIN_READ_BYTES = 1 << 10
"""Bytes that are read at a time at least. Few requests fit, and most requests come whole."""

MAX_LINE_ENDS = 64
"""Line ends in a larger piece. A request has two at least, so a large body without many is read in few pieces."""


class SequentialReads(BufferedWrites):
    """A connection that stops reading, and keeps the rest of its last read, while a request waits for an earlier one."""

    _unread = b""

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if len(data) <= MIN_READ_BYTES and not self._unread and not self.pipeline:
            self.feed(data)
        else:
            self._unread += data
            self._feed_unread()

    def feed(self, data: bytes) -> None:
        """Read a piece of what the client sends."""
        raise NotImplementedError

    def on_response_complete(self) -> None:
        """An answer has ended; the request behind it may be read."""
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


def _end_of_read(data: bytes, start: int) -> int:
    end = start
    for _ in range(MAX_LINE_ENDS):
        end = data.find(b"\n", end) + 1
        if not end:
            return len(data)
    return max(end, start + MIN_READ_BYTES)
