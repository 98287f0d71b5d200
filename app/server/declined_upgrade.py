"""Reads the requests after a head that offers another protocol, as if it offered none (RFC 9110, 7.8).

The parser ends a request that offers an upgrade with its head, and takes the body for bytes of the other protocol.
A second parser therefore takes over. It first reads a head with the same framing, which it does not pass on to the
connection, then the body and the requests that follow.
"""

from typing import Protocol

import httptools

from app.http.asgi import Headers

FRAMING_FIELDS = (b"content-length", b"transfer-encoding")
"""The fields that determine where a body ends (RFC 9112, 6)."""


class ParserCallbacks(Protocol):
    """The methods that a parser calls."""

    def on_message_begin(self) -> None: ...
    def on_url(self, url: bytes) -> None: ...
    def on_header(self, name: bytes, value: bytes) -> None: ...
    def on_headers_complete(self) -> None: ...
    def on_body(self, body: bytes) -> None: ...
    def on_chunk_header(self) -> None: ...
    def on_message_complete(self) -> None: ...


def parser_after_upgrade(callbacks: ParserCallbacks) -> httptools.HttpRequestParser:
    """Return a parser that hides the first head from the callbacks, and passes on everything after it."""
    parser = httptools.HttpRequestParser(_SkipFirstHead(callbacks))
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn sets it
    return parser


def head_without_upgrade(headers: Headers) -> bytes:
    """Return a head with the same framing as these headers, without an offer of another protocol."""
    framing = [b"%s: %s\r\n" % header for header in headers if header[0] in FRAMING_FIELDS]
    return b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(framing or [b"content-length: 0\r\n"])


class _SkipFirstHead:
    """Passes the calls of a parser on after the first head."""

    def __init__(self, callbacks: ParserCallbacks) -> None:
        self._callbacks = callbacks
        self._is_after_head = False
        self.on_body = callbacks.on_body
        self.on_chunk_header = callbacks.on_chunk_header
        self.on_message_complete = callbacks.on_message_complete

    def on_message_begin(self) -> None:
        """Pass on the beginning of a later request."""
        if self._is_after_head:
            self._callbacks.on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Pass on a piece of a later request's target."""
        if self._is_after_head:
            self._callbacks.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Pass on a trailer field, or a header field of a later request."""
        if self._is_after_head:
            self._callbacks.on_header(name, value)

    def on_headers_complete(self) -> None:
        """End the first head, or pass on the end of a later one."""
        if self._is_after_head:
            self._callbacks.on_headers_complete()
        self._is_after_head = True
