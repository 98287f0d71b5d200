"""The server directory of a single process, which is the only server of its broker."""

from app.broker.ports.server_directory import WINDOW_SECONDS, AllReports, Counts, ListedServer, Server


class MemoryServerDirectory:
    """Implements `ServerDirectory`: each report is a window of its own, and ends with it."""

    async def report(self, server: Server, counts: Counts) -> AllReports:
        """Return this server, and what it has handed over."""
        return AllReports([ListedServer(server, 0)], [counts], WINDOW_SECONDS)

    async def leave(self, server: Server, counts: Counts) -> None:
        """Do nothing: no other server reads the list."""
