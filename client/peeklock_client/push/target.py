"""Sends requests to one URL. It follows no redirect and uses no proxy, and it reads no more of an answer than it needs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

import httpcore
import httpx

from peeklock_client.connection import cause_of
from peeklock_client.push.addresses import TIMEOUT, CheckedConnections, is_public
from peeklock_client.push.answers import REJECTED, Answer
from peeklock_client.push.errors import InvalidPush, NotConnected, TargetFailed

MAX_CONTENT_BYTES = 64 << 10
"""How much of an answer is read."""

PART_BYTES = 64 << 10
"""How much of a request is written at a time. A target that reads this much within the limit of a write is making progress."""

DRAIN_SECONDS = 1.0
"""How long to read an answer whose body does not matter, so that its connection can be used again."""

KEEPALIVE_SECONDS = 1.0
"""How long an unused connection stays open: less than servers keep one, because a request on one that closes fails."""

DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How many seconds each phase of a request may take, and in `total` all of them together.

    `connect` limits the connection, and then TLS on it.
    """

    connect: float = 5.0
    send: float = 10.0
    answer: float = 30.0
    total: float = 60.0


@dataclass(frozen=True, slots=True)
class TargetUrl:
    """The URL of a target, checked and split. `name` is for logs: it has no query, because that may contain a secret."""

    name: str
    url: httpcore.URL
    host_header: bytes


def target_url(text: str, *, allow_private: bool) -> TargetUrl:
    """Check the URL of a target. Raises `InvalidPush`, also for an address that only `--allow-private` allows."""
    try:
        parsed = httpx.URL(text)
    except httpx.InvalidURL:  # its text quotes the URL, where it may find a port in a password
        raise InvalidPush("The URL to push to is not valid.") from None
    if parsed.scheme not in DEFAULT_PORTS or not parsed.host or "%" in parsed.host:
        raise InvalidPush("The URL to push to begins with https:// or http:// and names a host.")
    if parsed.userinfo or parsed.fragment:
        raise InvalidPush("The URL to push to has a user, a password or a fragment, which no request would contain.")
    if parsed.port is not None and not 1 <= parsed.port <= MAX_PORT:
        raise InvalidPush(f"The URL to push to has the port {parsed.port}. Ports are 1 to {MAX_PORT}.")
    with suppress(ValueError):  # a name, which is checked when it is resolved
        if not allow_private and not is_public(parsed.host):
            raise InvalidPush(f"{parsed.host} is not a public address. Only --allow-private allows it.")
    port = parsed.port or DEFAULT_PORTS[parsed.scheme]
    url = httpcore.URL(scheme=parsed.raw_scheme, host=parsed.raw_host, port=port, target=parsed.raw_path)
    name = str(parsed.copy_with(query=None))
    return TargetUrl(name, url, parsed.netloc)


class Target:
    """One URL with its connections, at most `connections` at a time. `tls` verifies certificates."""

    def __init__(
        self,
        url: TargetUrl,
        limits: TimeLimits,
        connections: int,
        *,
        backend: httpcore.AsyncNetworkBackend,
        tls: ssl.SSLContext,
    ) -> None:
        self.name = url.name
        self._url = url
        self._limits = limits
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=backend,
        )

    async def post(self, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> Answer:
        """Send a request, and return its answer. An answer whose status has come is one, even if its body breaks off.

        Raises `TargetFailed` if no status comes in time, and `NotConnected` if nothing was sent.
        """
        limits, answer = self._limits, None
        phases = {"connect": limits.connect, "write": limits.send, "read": limits.answer, "pool": limits.total}
        sent = [
            (b"host", self._url.host_header), (b"user-agent", b"peeklock-worker"),
            (b"accept", b"application/problem+json"), (b"content-length", str(len(body)).encode()), *headers,
        ]  # fmt: skip
        try:
            async with (
                asyncio.timeout(limits.total),
                self._pool.stream(
                    "POST", self._url.url, headers=sent, content=_parts(body), extensions={"timeout": phases}
                ) as response,
            ):
                answer = _head_of(response)
                answer = replace(answer, content=await _content(response))
        except (
            TargetFailed,
            httpcore.TimeoutException,
            TimeoutError,
            httpcore.NetworkError,
            httpcore.ProtocolError,
            OSError,  # httpcore lets the errors of TLS pass that come after the handshake
        ) as error:
            if answer is None:
                raise _failure(error, limits) from None
        return answer

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


def open_target(url: TargetUrl, limits: TimeLimits, connections: int, *, allow_private: bool) -> Target:
    """Return a target that is reached over the network.

    Certificates are verified with the authorities of certifi, or with those that `SSL_CERT_FILE` or `SSL_CERT_DIR` names.
    Raises `InvalidPush` if these cannot be read.
    """
    try:
        tls = httpx.create_ssl_context()
    except OSError as error:  # also that of a file without a certificate
        raise InvalidPush(f"SSL_CERT_FILE or SSL_CERT_DIR has no certificates that can be read: {error}") from None
    # Its type is not known where anyio is missing, which httpx installs.
    network = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())
    backend = CheckedConnections(allow_private=allow_private, connections=network)
    return Target(url, limits, connections, backend=backend, tls=tls)


async def _parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), PART_BYTES):
        yield body[start : start + PART_BYTES]


def _head_of(response: httpcore.Response) -> Answer:
    given = {name.lower(): value.decode("latin-1") for name, value in reversed(response.headers)}
    return Answer(response.status, given.get(b"content-type", ""), given.get(b"retry-after", ""))


async def _content(response: httpcore.Response) -> bytes:
    """Return the body of an answer that may have a reason. Of any other, read a little, so the connection can be used again."""
    if response.status in REJECTED:
        return await _read(response)
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            await _read(response)
    return b""


async def _read(response: httpcore.Response) -> bytes:
    content = bytearray()
    async for part in response.aiter_stream():
        content += part
        if len(content) > MAX_CONTENT_BYTES:
            return b""
    return bytes(content)


def _failure(error: Exception, limits: TimeLimits) -> TargetFailed:
    if isinstance(error, TargetFailed):
        return error
    match error:
        case httpcore.ConnectTimeout():
            return NotConnected(TIMEOUT, f"No connection within {limits.connect:g} s.")
        case httpcore.WriteTimeout():
            return TargetFailed(TIMEOUT, f"The target read less than {PART_BYTES >> 10} KiB in {limits.send:g} s.")
        case httpcore.ReadTimeout():
            return TargetFailed(TIMEOUT, f"The target sent nothing for {limits.answer:g} s.")
        case TimeoutError():
            return TargetFailed(TIMEOUT, f"No answer within {limits.total:g} s.")
        case httpcore.ConnectError():
            return NotConnected("not_connected", f"The connection failed: {cause_of(error)}")
        case _:
            return TargetFailed("no_answer", f"The connection ended without an answer: {cause_of(error)}")
