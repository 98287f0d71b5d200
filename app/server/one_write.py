"""uvicorn's HTTP protocol, with the head of an answer and its body in one write.

uvicorn writes them one after the other: two system calls, and a client that is woken to find half an answer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

INTERIM = b"HTTP/1.1 100 "


class OneWrite(HttpToolsProtocol):
    """A connection whose answers each go out in one write."""

    _whole: "Whole"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        self._whole = Whole(transport, self.loop.time)
        super().connection_made(self._whole)

    def on_response_complete(self) -> None:
        """An answer has ended, perhaps without a body, as to HEAD."""
        self._whole.end()
        super().on_response_complete()


class Whole(asyncio.Transport):
    """A connection that keeps an answer's head until its body, its end, or the end of the connection comes along."""

    __slots__ = ("_begun", "_head", "_inside", "_is_held", "_is_paused", "_now", "invited_at")

    def __init__(self, inside: asyncio.Transport, now: Callable[[], float]) -> None:
        super().__init__()
        self._inside = inside
        self._now = now
        self.invited_at = now()
        """When the client was last told to go on, or its bytes were read again after a pause."""
        self._begun = False
        self._head = b""
        self._is_held = False
        self._is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep the first piece of an answer, and write it with the second."""
        if self._head:
            self._inside.writelines((self._head, data))
            self._head = b""
        elif self._begun:
            self._inside.write(data)
        elif data[: len(INTERIM)] == INTERIM:
            self._inside.write(data)
            self.invited_at = self._now()
        else:
            self._begun = True
            self._head = bytes(data)

    def end(self) -> None:
        """The answer is whole; the next piece begins another one."""
        self._begun = False
        if self._head:
            self._inside.write(self._head)
            self._head = b""

    def close(self) -> None:
        """Write what was kept, and hang up."""
        self.end()
        self._inside.close()

    def leave(self, last_word: bytes) -> None:
        """Write this after what was kept, say that nothing follows, and go on reading."""
        self.end()
        if last_word:
            self._inside.write(last_word)
        self._inside.write_eof()

    def is_closing(self) -> bool:
        """See `asyncio.Transport`."""
        return self._inside.is_closing()

    def hold(self) -> None:
        """Read nothing until `let_go`, also where a request asks to read on."""
        self._is_held = True
        self._inside.pause_reading()

    def let_go(self) -> None:
        """Read on, unless reading is paused."""
        if self._is_held:
            self._is_held = False
            if not self._is_paused:
                self._read_on()

    def pause_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._is_paused = True
        self._inside.pause_reading()

    def resume_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._is_paused = False
        if not self._is_held:
            self._read_on()

    def _read_on(self) -> None:
        self._inside.resume_reading()
        self.invited_at = self._now()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.Transport`."""
        return self._inside.get_extra_info(name, default)
