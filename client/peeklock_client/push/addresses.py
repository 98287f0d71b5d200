"""Connects to a target only if its address is allowed, so that a URL cannot reach the network of the worker itself.

The name is resolved once for each connection, and the connection goes to an address that was checked. So a name that
resolves to another address a moment later (DNS rebinding) changes nothing. The name stays in `Host` and in TLS.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import httpcore

from peeklock_client.push.errors import NotConnected
from peeklock_client.push.streams import WatchedStream

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host for a port. Raises `OSError`, and `UnicodeError` for a text that cannot be a name."""

NAT64 = IPv6Network("64:ff9b::/96")
"""Addresses by which a network without IPv4 reaches IPv4. Their last four bytes are the address that is reached."""

PROTOCOLS = IPv4Network("192.0.0.0/24")
"""IETF protocol assignments, which some versions of Python call global."""

REFUSED = "address_refused"
UNREACHABLE = "unreachable"
TIMEOUT = "timeout"


def is_public(text: str) -> bool:
    """Return whether an address is one of the public internet, and so is the IPv4 address that it may contain."""
    address = ip_address(text)
    if isinstance(address, IPv4Address):
        return address.is_global and not (address.is_multicast or address.is_reserved or address in PROTOCOLS)
    embedded = _embedded(address)
    if embedded is not None:
        return is_public(str(embedded))
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_site_local)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that packets to this address are sent on to, None if there is none."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    return IPv4Address(address.packed[-4:]) if address in NAT64 else None


async def resolved(host: str, port: int) -> list[str]:
    """Return the addresses of a host, each once, in the order of the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class CheckedConnections(httpcore.AsyncNetworkBackend):
    """Opens connections to checked addresses. With `allow_private`, every address is allowed."""

    def __init__(
        self, *, allow_private: bool, connections: httpcore.AsyncNetworkBackend, resolve: Resolve = resolved
    ) -> None:
        self._allow_private = allow_private
        self._connections = connections
        self._resolve = resolve

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is that of httpcore
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of a host that answers, within `timeout` seconds together with the look-up.

        Raises `NotConnected` if the host is unknown, if one of its addresses is not allowed, or if none answers.
        """
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._allowed(host, port)
                return await self._connect(addresses, port, timeout, local_address, socket_options)
        except TimeoutError:
            raise NotConnected(TIMEOUT, f"No connection to {host}:{port} within {timeout:g} s.") from None

    async def _allowed(self, host: str, port: int) -> list[str]:
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:  # the second one for a name with an empty or a long label
            raise NotConnected(UNREACHABLE, f"The name {host} cannot be resolved: {error}") from None
        refused = [] if self._allow_private else [one for one in addresses if not is_public(one)]
        if refused:
            raise NotConnected(REFUSED, f"{host} has the address {refused[0]}, which only --allow-private allows.")
        return addresses

    async def _connect(
        self,
        addresses: list[str],
        port: int,
        timeout: float | None,  # noqa: ASYNC109 - shared among the addresses
        local_address: str | None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None,
    ) -> httpcore.AsyncNetworkStream:
        share = None if timeout is None else timeout / max(1, len(addresses))
        problem = "it has no address"
        for address in addresses:
            try:
                stream = await self._connections.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                problem = f"{type(error).__name__} {error}".strip()
            else:
                return WatchedStream(stream)
        raise NotConnected(UNREACHABLE, f"No connection to {', '.join(addresses)} on port {port}: {problem}.")

    async def sleep(self, seconds: float) -> None:
        """Wait. httpcore calls this between its own retries, of which there are none."""
        await asyncio.sleep(seconds)
