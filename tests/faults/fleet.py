"""Real servers under load: `peeklock serve` processes, the clients that work on them, and the verdict afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import app
from tests.faults import journal
from tests.faults.client_process import ClientLoad
from tests.faults.conservation import check
from tests.faults.database_access import remaining_messages, remaining_versions
from tests.faults.history import Finding
from tests.faults.polling import wait_until
from tests.faults.retrying_client import ANSWER_TIMEOUT_SECONDS, RetryingClient
from tests.servers import ServerProcess

ROOT = Path(app.__file__).parents[1]

SETTINGS = {
    "lock_duration_seconds": 2,
    "max_delivery_count": 1000,
    "duplicate_detection_window_seconds": 3600,
    "archive_retention_seconds": 3600,
}
"""A queue on which what was dropped comes back soon, nothing is set aside for having failed, and all leaves a trace."""

LONG_REDIS_TIMEOUT = {"PEEKLOCK_REDIS_TIMEOUT_SECONDS": "10"}
"""For a Redis that stays well: a busy machine is then not taken for one that has failed."""


class PeeklockServer(ServerProcess):
    """One server process; its options are assignments for its environment."""

    kind, title, program = "peeklock", "Peeklock", sys.executable

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as reply:
                return reply.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def lock_store(self) -> str:
        """What it says of its lock store."""
        with urllib.request.urlopen(f"{self.url}/readyz", timeout=ANSWER_TIMEOUT_SECONDS) as reply:
            return json.load(reply)["lock_store"]

    def initialise(self, data: Path) -> None:
        """Nothing to fill: the database was migrated before."""

    def command(self, data: Path) -> Sequence[str]:
        own = (f"PEEKLOCK_PORT={self.port}", f"PYTHONPATH={ROOT}", "PEEKLOCK_SWEEP_INTERVAL_SECONDS=0.2")
        return ["env", *own, *self.options, sys.executable, "-m", "app.cli", "serve"]


class Clients:
    """A process of clients at work on one queue."""

    def __init__(self, load: ClientLoad, process: asyncio.subprocess.Process) -> None:
        self.load = load
        self.process = process

    @classmethod
    async def start(cls, load: ClientLoad) -> Clients:
        """Begin to send and receive."""
        command = [sys.executable, "-m", "tests.faults.client_process", json.dumps(asdict(load))]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=asyncio.subprocess.PIPE
        )
        return cls(load, process)

    async def until_sent(self, sent: int) -> None:
        """Return once this number of sends is acknowledged, or all are done."""
        await wait_until(
            lambda: self.process.returncode is not None or self._sent() >= sent, f"{sent} messages are sent"
        )

    async def end(self) -> None:
        """Return when everything they sent has ended."""
        _, stderr = await self.process.communicate()
        assert self.process.returncode == 0, stderr.decode()[-3000:]

    async def kill(self) -> None:
        """End them at once, if they still run."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()

    def _sent(self) -> int:
        log = Path(self.load.log)
        calls = journal.read([log]) if log.exists() else []
        return sum(call.verb == "send" and call.is_acknowledged for call in calls)


class Fleet:
    """Servers on one database, and clients on one queue; what they were promised is judged in the end."""

    def __init__(
        self, start: Callable[..., ServerProcess], database: str, directory: Path, environment: Mapping[str, str]
    ) -> None:
        self.database = database
        self.directory = directory
        self.queue = f"fault-{secrets.token_hex(4)}"
        self._environment = {"PEEKLOCK_DATABASE_URL": database, **environment}
        self._start = start
        self._clients: list[Clients] = []
        self.servers: list[PeeklockServer] = []

    async def serve(self, **environment: str) -> PeeklockServer:
        """One more server, ready."""
        settings = [f"{name}={value}" for name, value in (self._environment | environment).items()]
        server = await asyncio.to_thread(self._start, PeeklockServer, *settings)
        assert isinstance(server, PeeklockServer)
        self.servers.append(server)
        return server

    def client(self, *urls: str, **more: Any) -> RetryingClient:
        """A client for the test; its queue must exist."""
        return RetryingClient(urls, self.queue, self._log(), **more)

    async def create_queue(self, url: str, **settings: Any) -> None:
        """Make the queue that all this is about."""
        async with self.client(url) as client:
            await client.create_queue(**SETTINGS | settings)

    async def start_clients(self, *urls: str, **load: Any) -> Clients:
        """Have clients begin to work through these servers."""
        name = f"c{len(self._clients)}"
        clients = await Clients.start(ClientLoad(name, urls, self.queue, str(self._log()), **load))
        self._clients.append(clients)
        return clients

    def calls(self) -> list[journal.RecordedCall]:
        """The recorded requests of all clients."""
        return journal.read(self.directory.glob("*.log"))

    def broken_promises(self, excused: Collection[str] = ()) -> list[Finding]:
        """Every promise that was not kept, but for the kinds that the fault excuses."""
        versions = remaining_versions(self.database, self.queue)
        findings = check(self.calls(), remaining_messages(self.database, self.queue), versions)
        return [finding for finding in findings if finding.kind not in excused]

    async def end(self) -> None:
        """End the clients that still run."""
        for clients in self._clients:
            await clients.kill()

    def _log(self) -> Path:
        return self.directory / f"{secrets.token_hex(4)}.log"
