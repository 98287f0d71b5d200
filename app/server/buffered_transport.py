"""A transport that writes the head and the body of an answer together.

uvicorn writes them separately: that takes two system calls, and wakes the client for half an answer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

CONTINUE_PREFIX = b"HTTP/1.1 100 "
_MAX_JOINED_BYTES = 64 << 10
"""A longer piece of a body is not copied behind the head: for it, a system call more costs little."""


class BufferedTransport(asyncio.Transport):
    """A transport that keeps an answer's head until its body, its end, or the end of the connection."""

    __slots__ = ("_head", "_is_in_response", "_is_paused", "_is_read_held", "_now", "_transport", "reading_since")

    def __init__(self, transport: asyncio.Transport, now: Callable[[], float]) -> None:
        super().__init__()
        self._transport = transport
        self._now = now
        self.reading_since = now()
        """When the client last got an answer or 100 Continue, or its bytes were read again after a pause."""
        self._is_in_response = False
        self._head = b""
        self._is_read_held = False
        self._is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep the first piece of an answer, and write it with the second one."""
        if self._head:
            # Not `writelines`: that of asyncio in Python 3.12 and 3.13 may not pause the protocol (python/cpython#127655),
            # and fails on a lost connection (python/cpython#136234).
            if len(data) > _MAX_JOINED_BYTES:
                self._transport.write(self._head)
                self._transport.write(data)
            else:
                self._transport.write(self._head + data)
            self._head = b""
        elif self._is_in_response:
            self._transport.write(data)
        elif data[: len(CONTINUE_PREFIX)] == CONTINUE_PREFIX:
            self._transport.write(data)
            self.reading_since = self._now()
        else:
            self._is_in_response = True
            self._head = bytes(data)

    def end_response(self) -> None:
        """End the answer, perhaps without a body, as for HEAD; the next piece begins another one."""
        self._is_in_response = False
        self.reading_since = self._now()
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        """Write the kept head, and close the connection."""
        self.end_response()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, and drop what the client has not taken."""
        self._head = b""
        self._transport.abort()

    def write_and_end(self, final_bytes: bytes) -> None:
        """Write these bytes after the kept head, end the writing side, and continue to read."""
        self.end_response()
        if final_bytes:
            self._transport.write(final_bytes)
        self._transport.write_eof()

    def is_closing(self) -> bool:
        """See `asyncio.Transport`."""
        return self._transport.is_closing()

    def hold_reading(self) -> None:
        """Read nothing until `release_reading`, even if a request resumes reading."""
        self._is_read_held = True
        self._transport.pause_reading()

    def release_reading(self) -> None:
        """Continue to read, unless reading is paused."""
        if self._is_read_held:
            self._is_read_held = False
            if not self._is_paused:
                self._resume()

    def pause_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._is_paused = False
        if not self._is_read_held:
            self._resume()

    def _resume(self) -> None:
        self._transport.resume_reading()
        self.reading_since = self._now()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.Transport`."""
        return self._transport.get_extra_info(name, default)
