"""A connection: HTTP as uvicorn reads it, and a problem document for bytes that are no valid request.

No operation can answer an invalid request. The connection answers it after the requests ahead of it, and closes.
"""

import asyncio
from enum import Enum, auto
from typing import Any, NoReturn, cast

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.http.request_id import request_id_from
from app.server.chunk_overhead import ChunkOverhead
from app.server.declined_upgrade import head_without_upgrade, parser_after_upgrade
from app.server.request_errors import (
    HEAD_TOO_LARGE,
    MALFORMED,
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    MAX_URL_BYTES,
    NO_HOST,
    TOO_MANY_CHUNKS,
    TOO_MANY_FIELDS,
    UNKNOWN_TRANSFER_CODING,
    URL_TOO_LONG,
    RequestError,
    error_response,
)
from app.server.sequential_reads import SequentialReads

MAX_DISCARD_BYTES = 256 << 10
"""Bytes of a body that are read and dropped after its request was answered. If the body ends within them, the
connection stays open for the next request."""

DISCARD_SECONDS = 5.0
"""How long the rest of a body may take after its request was answered."""

LINGER_SECONDS = 2.0
"""How long a connection stays open after a refusal, so that the client can read it. It limits no request."""


class Stage(Enum):
    """The part of the newest request that is being received."""

    NONE = auto()
    HEAD = auto()
    BODY = auto()


class RequestRejected(Exception):
    """A request is refused. Raised through the parser, to stop it."""


class Connection(SequentialReads):
    """One client's connection."""

    _stage = Stage.NONE
    _first_read_bytes = 0
    """Bytes of the piece in which the newest head began, including any bytes ahead of the head."""
    _later_read_bytes = 0
    """Bytes of that head in later pieces, without the newest piece."""
    _last_read_bytes = 0
    """Bytes of the newest piece."""
    _request_error = MALFORMED
    _running_cycle: RequestResponseCycle | None = None
    """The newest request whose operation has begun. `cycle` may be a later request, which waits for it."""
    _is_discarding = False
    _final_response: bytes | None = None
    """The refusal to send after the answers ahead of it."""
    _linger_timer: asyncio.TimerHandle | None = None
    _discard_left = MAX_DISCARD_BYTES
    """Bytes still to read of a request that was answered or refused."""
    _overhead: ChunkOverhead | None = None
    """The overhead of the newest request's chunks, if its body is chunked."""

    def feed(self, data: bytes) -> None:
        """Read a piece of the client's bytes; refuse an invalid request."""
        if self._is_discarding:
            self._discard(len(data))
            return
        before = self._stage
        self._last_read_bytes = len(data)
        if before is Stage.BODY:
            self._read_body(data)
        else:
            self._parse(data)
        if self._stage is Stage.HEAD and not self._is_discarding:
            if self._first_read_bytes:
                self._later_read_bytes += len(data)
            else:
                self._first_read_bytes = len(data)
            self._check_head_size()

    def on_message_begin(self) -> None:
        """The first byte of a request has arrived."""
        self._stage = Stage.HEAD
        self._first_read_bytes = self._later_read_bytes = 0
        self._overhead = None
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field has arrived. Strip the blanks after its value, which the parser keeps (RFC 9112, 5.1)."""
        # A call of uvicorn's method for each field would cost a fifteenth of reading and answering a request.
        name, value = name.lower(), value.rstrip(b" \t")
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """A head is complete; its operation starts. Raises `RequestRejected` for a refused request."""
        if error := self._head_error():
            self._reject_request(error)
        super().on_headers_complete()
        self._stage = Stage.BODY
        if self._overhead is not None:
            # The parser now appends trailer fields; the scope keeps the list of header fields.
            self.headers = cast("Any", self._overhead)

    def on_chunk_header(self) -> None:
        """A chunk of a body begins."""
        super().on_chunk_header()
        if self._overhead is not None:
            self._overhead.begin_chunk()

    def on_message_complete(self) -> None:
        """A request is complete, unless it offers an upgrade. Raises `RequestRejected` for trailers that are too large."""
        if self.parser.should_upgrade():
            return  # the next parser reads its body
        if self._overhead is not None and self._overhead.is_exceeded:
            self._reject_request(HEAD_TOO_LARGE)
        self._stage = Stage.NONE
        if self._linger_timer is not None:
            self._stop_linger()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer has ended. After the last one, send the pending refusal or discard the rest of a body."""
        was_last = not self.pipeline
        super().on_response_complete()
        if not was_last or self.transport.is_closing():
            return
        if self._final_response is not None:
            self._finish(self._final_response)
        elif self._stage is Stage.BODY and self.cycle.response_complete:
            self._discard_body()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stop_linger()
        if self._running_cycle is not None and not self._running_cycle.response_complete:
            # uvicorn informs only the newest request, which may wait for this one.
            self._running_cycle.disconnected = True
            self._running_cycle.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Begin to answer a request."""
        self._running_cycle = cycle
        super()._start_asgi_task(cycle, app)

    def _reject_request(self, error: RequestError) -> NoReturn:
        """Stop the parser, and let the connection refuse the newest request."""
        self._request_error = error
        raise RequestRejected

    def _parse(self, data: bytes) -> None:
        """Read requests. Decline the upgrades that they offer, and refuse an invalid request."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.parser = parser_after_upgrade(self)
            # One piece holds few heads, so few of these calls are inside of each other.
            self._parse(head_without_upgrade([*self.scope["headers"]]) + data[upgrade.args[0] :])
        except httptools.HttpParserError:
            if self._request_error is MALFORMED:
                self.logger.warning("Invalid HTTP request received.")
            self._refuse(self._request_error)

    def _read_body(self, data: bytes) -> None:
        """Read more of a body. Limit its overhead, or the rest of the body if its request was answered already."""
        request, cycle = self.scope, self.cycle
        before = len(cycle.body)
        self._parse(data)
        if self._is_discarding or self.scope is not request or self._stage is not Stage.BODY:
            return
        if cycle.response_complete:
            self._discard_left -= len(data)
            if self._discard_left < 0:
                self._close_after_response()
        elif self._overhead is not None:
            content = len(cycle.body) - before
            self._overhead.count(len(data) - content, content)
            if self._overhead.is_exceeded:
                self._refuse(HEAD_TOO_LARGE)
            elif self._overhead.has_too_many_chunks:
                self._refuse(TOO_MANY_CHUNKS)

    def _discard_body(self) -> None:
        """Read the rest of a short body whose request was answered, so that the next request can follow."""
        if self.expect_100_continue:
            # Without 100 Continue the client may send its body or leave it out, so the next bytes are ambiguous.
            self.transport.close()
            return
        self._discard_left = MAX_DISCARD_BYTES
        self._linger_timer = self.loop.call_later(DISCARD_SECONDS, self._buffered_transport.close)

    def _close_after_response(self) -> None:
        """End a connection whose client still sends a long body after its answer."""
        self._is_discarding = True
        self._finish(b"")

    def _discard(self, size: int) -> None:
        """Drop a little of what a refused client still sends, then stop reading."""
        self._discard_left -= size
        if self._discard_left < 0:
            self.flow.pause_reading()

    def _refuse(self, error: RequestError) -> None:
        """Answer the newest request with a problem, after the requests ahead of it, and read no further request."""
        self._is_discarding = True
        refusal = error_response(error, self._request_id(), self.server_state.default_headers, self._method())
        if self._stage is Stage.BODY:
            if not self.pipeline:
                self._finish(self._response_instead(refusal))
                return
            self.pipeline.popleft()
        elif not self._is_answering():
            self._finish(refusal)
            return
        self._final_response = refusal

    def _response_instead(self, refusal: bytes) -> bytes:
        """Return the refusal if the current request has no answer yet, and tell its operation that the client is gone."""
        if self.cycle.response_started:
            return b""
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        return refusal

    def _finish(self, final_bytes: bytes) -> None:
        """Send the final bytes, and read on for a moment: an early close would reset the connection and lose them."""
        self._unset_keepalive_if_required()
        self._buffered_transport.write_and_end(final_bytes)
        self.flow.resume_reading()
        self._discard(0)
        self._stop_linger()
        self._linger_timer = self.loop.call_later(LINGER_SECONDS, self._buffered_transport.close)

    def _stop_linger(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    def _is_answering(self) -> bool:
        return bool(self.cycle and not self.cycle.response_complete)

    def _request_id(self) -> str:
        if self._stage is Stage.NONE:
            return request_id_from(()).decode()
        state = self.scope.get("state", {})
        return state.get("request_id") or request_id_from([*self.scope["headers"]]).decode()

    def _method(self) -> bytes:
        """Return the method of the newest request, empty if it has not arrived."""
        return self.parser.get_method() if self._stage is not Stage.NONE and self.url else b""

    def _check_head_size(self) -> None:
        """Refuse a head that is too large before it ends."""
        if len(self.url) > MAX_URL_BYTES:
            self._refuse(URL_TOO_LONG)
        elif len(self.headers) > MAX_FIELDS:
            self._refuse(TOO_MANY_FIELDS)
        elif self._later_read_bytes > MAX_HEAD_BYTES:
            self._refuse(HEAD_TOO_LARGE)

    def _head_error(self) -> RequestError | None:
        """Return the error of a complete head, if any (RFC 9112, 3.2 and 6.1)."""
        if len(self.url) > MAX_URL_BYTES:
            return URL_TOO_LONG
        if self._first_read_bytes + self._later_read_bytes + self._last_read_bytes > MAX_HEAD_BYTES < self._head_size():
            return HEAD_TOO_LARGE
        if len(self.headers) > MAX_FIELDS:
            return TOO_MANY_FIELDS
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding":
                if value.lower() != b"chunked":
                    return UNKNOWN_TRANSFER_CODING
                self._overhead = ChunkOverhead(MAX_HEAD_BYTES - self._head_size())
        if hosts != 1 and self.parser.get_http_version() != "1.0":
            return NO_HOST
        # After the head of a CONNECT a tunnel begins, so the next bytes are no request.
        return MALFORMED if self.parser.get_method() == b"CONNECT" else None

    def _head_size(self) -> int:
        return len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
