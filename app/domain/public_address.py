"""The address at which clients find a server behind proxies, and the proxies that are trusted to report it."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network

ROOT_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+){0,16}/?")
_MAX_ROOT_PATH_LENGTH = 200
OWN_SEGMENTS = frozenset(("console", "docs", "livez", "metrics", "openapi.json", "readyz", "v1"))
"""The first segments of a server's own paths. A root path must not begin with one of them: then a path could be read both
with and without the root path."""


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """An operator's settings for the proxies in front of a server: the server's root path, and the proxies to trust."""

    root_path: str = ""
    trusted_proxies: tuple[Network, ...] = ()

    def trusts(self, client: str) -> bool:
        """Return whether this IP address is that of a trusted proxy."""
        address = ip_address(client.partition("%")[0])
        if isinstance(address, IPv6Address):
            address = address.ipv4_mapped or address
        return any(address in network for network in self.trusted_proxies)


def parse_root_path(text: str) -> str:
    """Return a root path without a slash at its end, empty for the root itself. Raises `ValueError`."""
    if len(text) > _MAX_ROOT_PATH_LENGTH or ROOT_PATH.fullmatch(text) is None:
        raise ValueError(
            "A root path begins with a slash, such as /peeklock, and has no characters that need escaping."
        )
    path = text.removesuffix("/")
    first = path.split("/")[1] if path else ""
    if first in OWN_SEGMENTS:
        raise ValueError(f"A root path does not begin with /{first}, which is a path of the server itself.")
    return path


def below_root(root_path: str, path: str) -> str:
    """Return a path without the root path, which a proxy may have removed already."""
    has_root = root_path != "" and (path == root_path or path.startswith(root_path + "/"))
    return path.removeprefix(root_path) or "/" if has_root else path


def parse_networks(text: str) -> tuple[Network, ...]:
    """Return the networks of a list of addresses and networks, separated by commas. Raises `ValueError`."""
    return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
