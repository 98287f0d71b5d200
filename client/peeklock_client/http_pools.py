"""The HTTP connections of a client: a pool for each event loop, because a connection works only in the loop that opened it.

A forked process has event loops of its own, so it does not share connections with its parent either.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

import httpx

from peeklock_client.errors import ClientClosed, WrongEventLoop

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)


class HttpPools:
    """The pools of one client. Raises `ValueError` at once if the environment names an invalid proxy.

    A server on this host is reached without a proxy, because a proxy would look for it on the proxy's own host.
    """

    def __init__(self, url: str) -> None:
        host = httpx.URL(url).host
        self._direct = {f"all://[{host}]" if ":" in host else f"all://{host}": None} if is_loopback(host) else {}
        self._tls = httpx.create_ssl_context()
        self._pools: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}
        self._is_closed = False
        self._new_pool()

    def current(self) -> httpx.AsyncClient:
        """Return the pool of the running event loop. Raises `ClientClosed` and `WrongEventLoop`."""
        if self._is_closed:
            raise ClientClosed("The client is closed. Nothing was sent.")
        loop = running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            self._forget_closed_loops()
            pool = self._pools.setdefault(loop, self._new_pool())
        return pool

    async def close(self) -> None:
        """Close the connections of the running event loop. Those of other loops are closed once nothing uses them."""
        self._is_closed = True
        own = self._pools.get(running_loop())
        self._pools.clear()
        if own is not None:
            await own.aclose()

    def _new_pool(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(limits=LIMITS, verify=self._tls, mounts=self._direct)

    def _forget_closed_loops(self) -> None:
        for loop in [*self._pools]:
            if loop.is_closed():
                self._pools.pop(loop, None)


class GivenHttp:
    """An HTTP client of the caller. It stays with the first event loop that uses it, and the caller closes it."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._loop: asyncio.AbstractEventLoop | None = None

    def current(self) -> httpx.AsyncClient:
        """Return the HTTP client. Raises `WrongEventLoop` in any other event loop."""
        loop = running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise WrongEventLoop(
                "The HTTP client that was passed to this client belongs to another event loop. Create a client for each."
            )
        return self._http

    async def close(self) -> None:
        """Leave the HTTP client open."""


def is_loopback(host: str) -> bool:
    """Return whether a name or an address means this host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that runs this code. Raises `WrongEventLoop` in a process that was forked inside of one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise WrongEventLoop(
            "No asyncio event loop is running. An event loop does not continue in a forked process."
        ) from error
