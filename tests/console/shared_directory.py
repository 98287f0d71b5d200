"""A server directory whose answers a test prepares, and other servers for it."""

from __future__ import annotations

from app import __version__
from app.broker.ports.server_directory import AllReports, Counts, ListedServer, Server
from app.console.activity import SAMPLE_SECONDS
from app.domain.instant import HOUR, Duration
from tests.console.console_server import ConsoleServer


class Directory:
    """A directory of several servers: its answers are those that a test has prepared, and it keeps what is handed over."""

    def __init__(self) -> None:
        self.answer: AllReports | None = AllReports((), (), SAMPLE_SECONDS)
        self.reported: list[tuple[Server, Counts]] = []
        self.left: list[tuple[Server, Counts]] = []

    async def report(self, server: Server, counts: Counts) -> AllReports | None:
        """See `ServerDirectory`."""
        self.reported.append((server, counts))
        return self.answer

    async def leave(self, server: Server, counts: Counts) -> None:
        """See `ServerDirectory`."""
        self.left.append((server, counts))

    def add_windows(self, *windows: Counts) -> None:
        """Answer these windows from now on."""
        self.answer = AllReports(self.answer.servers if self.answer else (), windows, SAMPLE_SECONDS)

    def list_servers(self, *servers: ListedServer) -> None:
        """Answer these servers from now on."""
        self.answer = AllReports(servers, (), SAMPLE_SECONDS)


def other(console: ConsoleServer, name: str, *, version: str = __version__, age: Duration = 0) -> ListedServer:
    """Another server."""
    return ListedServer(Server(name, name, 18, version, console.server.started_at - HOUR), age)
