"""Servers on this host are reached without a proxy, which would look for them on its own host."""

from ipaddress import ip_address

import httpx


def direct_mounts(url: str) -> dict[str, None]:
    """Return the mounts with which a client of HTTP reaches a server on this host without the proxy of the environment.

    Empty for other hosts. Raises `httpx.InvalidURL`.
    """
    host = httpx.URL(url).host
    if not is_loopback(host):
        return {}
    return {f"all://[{host}]" if ":" in host else f"all://{host}": None}


def is_loopback(host: str) -> bool:
    """Return whether a name or an address means this host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
