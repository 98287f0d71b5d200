"""The start page of a server as JSON."""

from typing import Literal

import msgspec


class IndexLinks(msgspec.Struct):
    """The paths of this server that need no API key. Behind a proxy with a path, they begin with this path."""

    docs: str
    document: str
    liveness: str
    readiness: str
    metrics: str


class ServerIndex(msgspec.Struct, kw_only=True):
    """The program and its version, the paths that need no API key, and the paths of the guides in the repository."""

    name: Literal["Peeklock"] = "Peeklock"
    version: str
    links: IndexLinks
    guides: list[str]
