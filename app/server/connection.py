"""What a server speaks on each connection: HTTP as uvicorn reads it, and a problem document for what is none.

A request that cannot be read never becomes one, so no operation could answer it; it is answered here, after the
requests ahead of it, and the connection ends.
"""

import asyncio
from enum import Enum, auto
from typing import Any, cast

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.api.front import request_id
from app.api.problems import UNREADABLE, plain_problem
from app.domain.refusals import Overloaded
from app.server.chunks import Overhead
from app.server.in_turn import InTurn
from app.server.resuming import head_without_offer, successor

LARGEST_URL = 16 << 10
"""Bytes of a request's target: a filter of 1 KiB and a cursor need a quarter of it, however they are escaped."""

LARGEST_HEAD = 64 << 10
"""Bytes of its target, header fields and trailer fields: a raw send may carry 32 KiB of properties there."""

MOST_FIELDS = 128
"""Header fields of a request: up to 64 properties of a raw send, and as many others. Each takes 160 bytes of memory
besides its own, so the bytes of a head do not bound it."""

LARGEST_REST = 256 << 10
"""Bytes of a body that are still read, and dropped, after its request was answered. A body that ends within them
leaves the connection open for the next request."""

REST_SECONDS = 5.0
"""How long the rest of a body may take after its request was answered."""

LINGER_SECONDS = 2.0
"""How long a refused client may still send before the connection is cut: time to read why."""

Complaint = tuple[int, str]
"""Status and detail of a problem."""

CODES = {**UNREADABLE, 503: Overloaded.code}

MALFORMED: Complaint = (400, "This is not HTTP/1.1 as RFC 9112 writes it, or its method is unknown.")
NO_HOST: Complaint = (400, "A request of HTTP/1.1 has exactly one Host header.")
UNKNOWN_CODING: Complaint = (501, "The only transfer coding of a request that is known here is chunked.")
URL_TOO_LONG: Complaint = (414, f"The target of a request has at most {LARGEST_URL} bytes.")
HEAD_TOO_LARGE: Complaint = (
    431, f"The target, header fields, trailer fields and chunk extensions of a request have about {LARGEST_HEAD} bytes at most."
)  # fmt: skip
TOO_MANY_FIELDS: Complaint = (431, f"A request has at most {MOST_FIELDS} header fields.")


class Stage(Enum):
    """How much of the newest request is here."""

    NONE = auto()
    HEAD = auto()
    BODY = auto()


class Unacceptable(Exception):
    """A request is not taken in; raised through the parser, so that it stops."""


class Connection(InTurn):
    """One client's connection."""

    _stage = Stage.NONE
    _began_in = 0
    """Bytes of the piece in which the newest head began. What was ahead of it there is not told apart."""
    _arrived = 0
    """Bytes of that head which have come since, before the newest piece."""
    _read = 0
    """Bytes of the newest piece."""
    _complaint = MALFORMED
    _is_deaf = False
    _last_word: bytes | None = None
    """The refusal that waits for the answers ahead of it."""
    _linger: asyncio.TimerHandle | None = None
    _rest = LARGEST_REST
    """Bytes that are still read of a request that was answered or refused."""
    _overhead: Overhead | None = None
    """What the newest request's chunks may have besides their content, if its body is chunked."""

    def take_in(self, data: bytes) -> None:
        """Read a piece of what the client sends; refuse what is no request."""
        if self._is_deaf:
            self._drop(len(data))
            return
        before = self._stage
        self._read = len(data)
        if before is Stage.BODY:
            self._read_body(data)
        else:
            self._parse(data)
        if self._stage is Stage.HEAD and not self._is_deaf:
            if self._began_in:
                self._arrived += len(data)
            else:
                self._began_in = len(data)
            self._bound_head()

    def on_message_begin(self) -> None:
        """The first byte of a request is here."""
        self._stage = Stage.HEAD
        self._began_in = self._arrived = 0
        self._overhead = None
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field is here. The parser keeps the blanks behind its value (RFC 9112, 5.1)."""
        super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """A request's head is here; it is answered from now on. Raises `Unacceptable` for one that is not taken in."""
        if complaint := self._fault_of_head():
            self._complaint = complaint
            raise Unacceptable
        super().on_headers_complete()
        self._stage = Stage.BODY
        if self._overhead is not None:
            # From here on the parser appends trailer fields; the scope keeps the list of header fields.
            self.headers = cast("Any", self._overhead)

    def on_chunk_header(self) -> None:
        """A chunk of a body begins."""
        if self._overhead is not None:
            self._overhead.begin_chunk()

    def on_message_complete(self) -> None:
        """A whole request is here, unless it offers an upgrade. Raises `Unacceptable` for trailers that are too large."""
        if self.parser.should_upgrade():
            return  # its body comes through the parser that takes over
        if self._overhead is not None and self._overhead.is_exceeded:
            self._complaint = HEAD_TOO_LARGE
            raise Unacceptable
        self._stage = Stage.NONE
        if self._linger is not None:
            self._stop_linger()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer has ended; where it was the last one that is owed, so does the connection."""
        was_last = not self.pipeline
        super().on_response_complete()
        if not was_last or self.transport.is_closing():
            return
        if self._last_word is not None:
            self._end(self._last_word)
        elif self._stage is Stage.BODY and self.cycle.response_complete:
            self._await_rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stop_linger()
        super().connection_lost(exc)

    def _parse(self, data: bytes) -> None:
        """Read requests; refuse what is none."""
        self._unset_keepalive_if_required()
        left: bytes | memoryview = data
        try:
            while left:
                left = self._parse_until_offer(left)
        except httptools.HttpParserError:
            if self._complaint is MALFORMED:
                self.logger.warning("Invalid HTTP request received.")
            self._refuse(self._complaint)

    def _parse_until_offer(self, data: bytes | memoryview) -> bytes | memoryview:
        """Read requests until one offers an upgrade; decline, and return what comes after its head."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self.parser = successor(self)
            self.parser.feed_data(head_without_offer([*self.scope["headers"]]))
            return memoryview(data)[offer.args[0] :]
        return b""

    def _read_body(self, data: bytes) -> None:
        """Read more of a body, within the bounds of its overhead, or of its rest if it was answered already."""
        request, cycle = self.scope, self.cycle
        before = len(cycle.body)
        self._parse(data)
        if self._is_deaf or self.scope is not request or self._stage is not Stage.BODY:
            return
        if cycle.response_complete:
            self._rest -= len(data)
            if self._rest < 0:
                self._hang_up_on_rest()
        elif self._overhead is not None:
            self._overhead.arrived(len(data) - (len(cycle.body) - before))
            if self._overhead.is_exceeded:
                self._refuse(HEAD_TOO_LARGE)

    def _await_rest(self) -> None:
        """Read a little more of a body whose request was answered, so that the next request can follow it."""
        if self.expect_100_continue:
            # Not told to go on, the client may keep its body to itself, so what comes next cannot be told apart.
            self.transport.close()
            return
        self._rest = LARGEST_REST
        self._linger = self.loop.call_later(REST_SECONDS, self._whole.close)

    def _hang_up_on_rest(self) -> None:
        """End a connection whose client goes on sending a body that was answered already."""
        self._is_deaf = True
        self._end(b"")

    def _drop(self, size: int) -> None:
        """Take in a little of what a refused client still sends, then nothing more."""
        self._rest -= size
        if self._rest < 0:
            self.flow.pause_reading()

    def _refuse(self, complaint: Complaint) -> None:
        """Answer the newest request with a problem, in its turn, and hear no more from this client."""
        self._is_deaf = True
        refusal = self._refusal(complaint)
        if self._stage is Stage.BODY:
            if not self.pipeline:
                self._end(self._instead(refusal))
                return
            self.pipeline.popleft()
        elif not self._is_answering():
            self._end(refusal)
            return
        self._last_word = refusal

    def _instead(self, refusal: bytes) -> bytes:
        """What is left to say of the request that is under way; its operation is told that nobody listens."""
        if self.cycle.response_started:
            return b""
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        return refusal

    def _end(self, last_word: bytes) -> None:
        """Say the last word, and let what the client still sends pass for a moment: a reset would take it away."""
        self._unset_keepalive_if_required()
        self._whole.leave(last_word)
        self.flow.resume_reading()
        self._drop(0)
        self._stop_linger()
        self._linger = self.loop.call_later(LINGER_SECONDS, self._whole.close)

    def _stop_linger(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _refusal(self, complaint: Complaint) -> bytes:
        status, detail = complaint
        tracking_id = self._tracking_id()
        body = msgspec.json.encode(plain_problem(status, CODES[status], detail, tracking_id))
        headers = (
            *self.server_state.default_headers,
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/problem+json"),
            (b"x-request-id", tracking_id.encode()),
            (b"connection", b"close"),
            *(((b"retry-after", b"1"),) if status == 503 else ()),
        )
        return b"".join((STATUS_LINE[status], *(b"%s: %s\r\n" % header for header in headers), b"\r\n", body))

    def _is_answering(self) -> bool:
        return bool(self.cycle and not self.cycle.response_complete)

    def _tracking_id(self) -> str:
        if self._stage is Stage.NONE:
            return request_id(()).decode()
        state = self.scope.get("state", {})
        return state.get("request_id") or request_id([*self.scope["headers"]]).decode()

    def _bound_head(self) -> None:
        """Refuse a head that is too large before it ends."""
        if len(self.url) > LARGEST_URL:
            self._refuse(URL_TOO_LONG)
        elif len(self.headers) > MOST_FIELDS:
            self._refuse(TOO_MANY_FIELDS)
        elif self._arrived > LARGEST_HEAD:
            self._refuse(HEAD_TOO_LARGE)

    def _fault_of_head(self) -> Complaint | None:
        """What is wrong with a whole head (RFC 9112, 3.2 and 6.1)."""
        if len(self.url) > LARGEST_URL:
            return URL_TOO_LONG
        if self._began_in + self._arrived + self._read > LARGEST_HEAD < self._head_size():
            return HEAD_TOO_LARGE
        if len(self.headers) > MOST_FIELDS:
            return TOO_MANY_FIELDS
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding":
                if value.lower() != b"chunked":
                    return UNKNOWN_CODING
                self._overhead = Overhead(LARGEST_HEAD - self._head_size())
        if hosts != 1 and self.parser.get_http_version() != "1.0":
            return NO_HOST
        # A tunnel begins after the head of a CONNECT, so what follows the head is no request that could be answered.
        return MALFORMED if self.parser.get_method() == b"CONNECT" else None

    def _head_size(self) -> int:
        return len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
