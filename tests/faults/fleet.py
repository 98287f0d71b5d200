"""Real servers under load: `peeklock serve` processes, the clients that work on them, and the verdict afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.faults import journal
from tests.faults.conservation import Finding, check
from tests.faults.outside import remnants
from tests.faults.waiting import until
from tests.faults.worker import Load
from tests.servers import Server

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = {
    "lock_duration_seconds": 2,
    "max_delivery_count": 1000,
    "duplicate_detection_window_seconds": 3600,
    "archive_retention_seconds": 3600,
}
"""A queue on which what was dropped comes back soon, nothing is set aside for having failed, and all leaves a trace."""


class PeeklockServer(Server):
    """One server process; its options are assignments for its environment."""

    kind, title, program = "peeklock", "Peeklock", sys.executable

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as reply:
                return reply.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def initialise(self, data: Path) -> None:
        """Nothing to fill: the database was migrated before."""

    def command(self, data: Path) -> Sequence[str]:
        own = (f"PEEKLOCK_PORT={self.port}", f"PYTHONPATH={ROOT}", "PEEKLOCK_SWEEP_INTERVAL_SECONDS=0.2")
        return ["env", *own, *self.options, sys.executable, "-m", "app.cli", "serve"]


class Clients:
    """A process of clients at work on one queue."""

    def __init__(self, load: Load, process: asyncio.subprocess.Process) -> None:
        self.load = load
        self.process = process

    @classmethod
    async def start(cls, load: Load) -> Clients:
        """Begin to send and receive."""
        command = [sys.executable, "-m", "tests.faults.worker", json.dumps(asdict(load))]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=asyncio.subprocess.PIPE
        )
        return cls(load, process)

    async def until_sent(self, sent: int) -> None:
        """Return once so many sends were acknowledged, or all is done."""
        await until(lambda: self.process.returncode is not None or self._sent() >= sent, f"{sent} messages are sent")

    async def end(self) -> None:
        """Return when everything they sent has ended."""
        _, said = await self.process.communicate()
        assert self.process.returncode == 0, said.decode()[-3000:]

    async def kill(self) -> None:
        """End them at once, if they still run."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()

    def _sent(self) -> int:
        log = Path(self.load.log)
        calls = journal.read([log]) if log.exists() else []
        return sum(call.verb == "send" and call.is_acknowledged for call in calls)


def verdict(
    database: str, queue: str, logs: Collection[Path], *, excused: Collection[str] = ()
) -> tuple[list[journal.Call], list[Finding]]:
    """Every call of these logs, and every promise that was not kept, but for the kinds that the fault excuses."""
    calls = journal.read(logs)
    findings = check(calls, remnants(database, queue))
    return calls, [finding for finding in findings if finding.kind not in excused]
