"""Closes connections whose clients stop or slow down within a request, or never begin one."""

import asyncio

from app.server.connection import Connection, Stage
from app.server.request_errors import RequestError

MIN_BYTES_PER_SECOND = 8 << 10
"""Minimum speed of a body. A body reserves all the bytes that it announces, however slowly they arrive."""

TOO_SLOW: RequestError = (
    408, f"The rest of this request did not arrive in time. A body may take 30 seconds, and one more for every {MIN_BYTES_PER_SECOND} bytes."
)  # fmt: skip


class TimedConnection(Connection):
    """A connection with a read timeout.

    A head must be complete within `timeout_seconds` of its first byte. A body must be complete within `timeout_seconds` of
    its head, plus its size divided by `MIN_BYTES_PER_SECOND`. No time runs while a client waits for the server: for an
    answer, for 100 Continue, or for its bytes to be read. A request that arrives in one read sets no timer.
    """

    timeout_seconds = 30.0
    _waiting_since = 0.0
    """Since when the client owes the next part of its request; each byte of a body postpones it."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._waiting_since = self.loop.time()
        self._set_timer(self.timeout_seconds)

    def feed(self, data: bytes) -> None:
        """Read a piece of the client's bytes, and start to wait for more."""
        newest, before = self.scope, self._stage
        super().feed(data)
        if self._stage is Stage.NONE:
            if self._timer is None and self.timeout_keep_alive_task is None and not self._is_answering():
                # A blank line between requests has cancelled uvicorn's timeout of an idle connection.
                self._set_timer(self.timeout_seconds)
            return
        if self.scope is not newest or self._stage is not before:
            self._waiting_since = self.loop.time()
        elif self._stage is Stage.BODY:
            since = max(self._waiting_since, self._buffered_transport.reading_since)
            self._waiting_since = min(since + len(data) / MIN_BYTES_PER_SECOND, self.loop.time())
        if self._timer is None:
            self._set_timer(self.timeout_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _set_timer(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._check_timeout)

    def _check_timeout(self) -> None:
        """Refuse a request whose rest is overdue, or check again when it could be."""
        self._timer = None
        if self._is_discarding:
            return
        if self._stage is Stage.NONE:
            self._close_if_idle()
            return
        if self._is_client_waiting():
            self._waiting_since = self.loop.time()
        self._waiting_since = max(self._waiting_since, self._buffered_transport.reading_since)
        left = self._waiting_since + self.timeout_seconds - self.loop.time()
        if left > 0:
            self._set_timer(left)
        else:
            self._refuse(TOO_SLOW)

    def _close_if_idle(self) -> None:
        """Close an idle connection without a timeout of uvicorn: one without an answer since its last byte."""
        if not self._is_answering() and self.timeout_keep_alive_task is None:
            self.transport.close()

    def _is_client_waiting(self) -> bool:
        if self.flow.read_paused or self.pipeline:
            return True
        if self._stage is Stage.HEAD:
            return self._is_answering()
        return self.cycle.waiting_for_100_continue
