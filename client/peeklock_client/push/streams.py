"""A connection that is not used again after an answer with more bytes than it announced.

httpcore would read such bytes as the answer to the next request, and complete a message that its target has not accepted.
"""

# ruff: noqa: ASYNC109 - the signatures are those of httpcore

from __future__ import annotations

import ssl
from typing import Any

import h11
import httpcore

MAX_BYTES = 128 << 10
"""How much of an answer is kept to find its end. After a longer one, the connection is not used again."""


class WatchedStream(httpcore.AsyncNetworkStream):
    """Keeps what is read after each request. It calls itself readable if that is more than one answer.

    httpcore closes an idle connection that is readable.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._received = bytearray()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read, and keep what was read."""
        part = await self._stream.read(max_bytes, timeout)
        if len(self._received) <= MAX_BYTES:
            self._received += part
        return part

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write a part of a request, whose answer is read after it."""
        self._received.clear()
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Return the connection with TLS."""
        return WatchedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore asks for, such as `is_readable`."""
        if info == "is_readable" and (self._has_excess() or self._has_unread_record()):
            return True
        return self._stream.get_extra_info(info)

    def _has_excess(self) -> bool:
        if len(self._received) > MAX_BYTES or (self._received and has_excess(bytes(self._received))):
            return True
        self._received.clear()
        return False

    def _has_unread_record(self) -> bool:
        """Return whether TLS has bytes that are not read. The socket has none then."""
        tls: ssl.SSLObject | None = self._stream.get_extra_info("ssl_object")
        if tls is None:
            return False
        try:
            tls.read(1)
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            pass  # the target has ended the connection
        return True


def has_excess(received: bytes) -> bool:
    """Return whether bytes, which begin with an answer to a POST, have more than that answer."""
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_BYTES)
    parser.send(h11.Request(method="POST", target="/", headers=[("Host", "")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(received)
    while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        pass
    return event is h11.PAUSED
