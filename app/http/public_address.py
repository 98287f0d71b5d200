"""Serves an application at its public address, at which clients find it behind proxies.

A proxy may pass on the root path or remove it. Both work, and paths in answers begin with the root path.
"""

import re
from collections.abc import Awaitable
from functools import lru_cache

from app.domain.public_address import PublicAddress, below_root, parse_root_path
from app.domain.refusals import InvalidRequest
from app.http.asgi import ASGI, Event, Headers, Receive, Scope, Send
from app.http.request import given_twice, invalid_header
from app.http.response import refusal_response, respond

PROTO, HOST, PREFIX = "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Prefix"
FORWARDED_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_MAX_KNOWN_CLIENTS = 1024
"""Addresses of clients for which a process remembers whether they are those of trusted proxies."""


def at_public_address(application: ASGI, address: PublicAddress) -> ASGI:
    """Return the application at its public address. Without a root path and a trusted proxy it is returned unchanged."""
    return application if address == PublicAddress() else PublicAddressMiddleware(application, address)


class PublicAddressMiddleware:
    """ASGI middleware that gives requests their public scheme, host and `root_path`, and answers their public paths.

    It reads `X-Forwarded-Proto`, `-Host` and `-Prefix` of trusted proxies. It ignores those of other clients, because
    every client can send them. A value that is not understood, or is given twice, is refused.
    """

    def __init__(self, application: ASGI, address: PublicAddress) -> None:
        self._application = application
        self._root_path = address.root_path
        self._trusts = lru_cache(maxsize=_MAX_KNOWN_CLIENTS)(address.trusts)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        try:
            public = self._public(scope)
        except InvalidRequest as refusal:
            return respond(send, refusal_response(refusal, scope["state"]["request_id"]))
        root: str = public["root_path"]
        return self._application(public, receive, _with_root(send, root.encode()) if root else send)

    def _public(self, scope: Scope) -> Scope:
        """Return the request with the scheme, host and path that the client has used. Refuses with `InvalidRequest`."""
        public = {**scope, "root_path": self._root_path}
        if scope["client"] and self._trusts(scope["client"][0]):
            public |= _forwarded(scope["headers"])
        root: str = public["root_path"]
        public["path"] = below_root(root, scope["path"])
        public["raw_path"] = below_root(root, scope["raw_path"].decode("latin-1")).encode("latin-1")
        return public


def _forwarded(headers: Headers) -> Scope:
    """Return what a proxy reports about the client's request. Refuses with `InvalidRequest`."""
    forwarded: Scope = {}
    if (scheme := _single(headers, PROTO)) is not None:
        forwarded["scheme"] = _parse_scheme(scheme)
    if (host := _single(headers, HOST)) is not None:
        forwarded["headers"] = [*(header for header in headers if header[0] != b"host"), (b"host", _parse_host(host))]
    if (prefix := _single(headers, PREFIX)) is not None:
        forwarded["root_path"] = _parse_prefix(prefix)
    return forwarded


def _single(headers: Headers, name: str) -> str | None:
    """Return the value of a header, None without it. Refuses a header that is given twice, because one may be forged."""
    wanted = name.lower().encode()
    values = [value.decode("latin-1").strip() for key, value in headers if key == wanted]
    if len(values) > 1:
        raise given_twice(name)
    return values[0] if values else None


def _parse_scheme(text: str) -> str:
    if text.lower() not in ("http", "https"):
        raise invalid_header(PROTO, "The proxy must send `http` or `https`.")
    return text.lower()


def _parse_host(text: str) -> bytes:
    if FORWARDED_HOST.fullmatch(text) is None:
        raise invalid_header(HOST, "The proxy must send one host, with its port unless that is the default.")
    return text.encode()


def _parse_prefix(text: str) -> str:
    try:
        return parse_root_path(text)
    except ValueError as error:
        raise invalid_header(PREFIX, str(error)) from None


def _with_root(send: Send, root: bytes) -> Send:
    """Return `send` with the root path before the paths in `Location` and `Link`."""

    def send_with_root(event: Event) -> Awaitable[None]:
        if event["type"] == "http.response.start":
            headers = [(name, _rooted(name, value, root)) for name, value in event.get("headers", ())]
            event = {**event, "headers": headers}
        return send(event)

    return send_with_root


def _rooted(name: bytes, value: bytes, root: bytes) -> bytes:
    if name == b"location" and value.startswith(b"/"):
        return root + value
    return b"<" + root + value[1:] if name == b"link" and value.startswith(b"</") else value
