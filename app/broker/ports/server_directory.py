"""The servers of one broker, and what has happened at all of them together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from app.domain.instant import Duration, Instant

WINDOW_SECONDS = 5.0
"""Counts are summed within windows of this length. It limits no request."""

LISTED_SECONDS = 15.0
"""How long a server is listed after its last report. It limits no request."""

MAX_WINDOWS = 12
"""Windows that one answer may have. A server that has read nothing for longer than a minute misses the older ones.
It limits no request."""

MAX_COUNTS = 10_000
"""Amounts of one report, and of the sums of one window: ten for each of a thousand queues. It limits no request."""

Counts: TypeAlias = Mapping[int, Mapping[str, int]]
"""Amounts by queue id and name, 0 or more. A name has letters and underscores."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server process, as it describes itself."""

    id: str
    host: str
    process: int
    version: str
    started_at: Instant


@dataclass(frozen=True, slots=True)
class ListedServer:
    """A server that has reported within `LISTED_SECONDS`, and the time since then."""

    server: Server
    age: Duration


@dataclass(frozen=True, slots=True)
class AllReports:
    """What all servers have reported.

    `windows` has the sums of the windows that have ended since the last answer, the oldest first. The next report should
    follow after `next_seconds`.
    """

    servers: Sequence[ListedServer]
    windows: Sequence[Counts]
    next_seconds: float


class ServerDirectory(Protocol):
    """Brings the reports of all servers of a broker together. Its methods return on failure and never raise."""

    async def report(self, server: Server, counts: Counts) -> AllReports | None:
        """Hand over the counts of this server since its last call, and return what all servers have reported.

        Counts are added to the window of their arrival. None if nothing can be known now. No other answer has the counts of
        that call then, here: the caller has them itself.
        """
        ...

    async def leave(self, server: Server, counts: Counts) -> None:
        """Hand over the last counts of this server, and take it off the list. If this fails, it is listed until it is late."""
        ...
