"""Several processes that run one worker: one that dies is started again, and all end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

POLL_SECONDS = 0.5
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0
"""How long a process that died stays away: twice as long after each further death."""

STEADY_SECONDS = 60.0
"""A process that has run for this long begins with the first pause again."""


class Process:
    """One process, and when it may be started again."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._pause = FIRST_PAUSE_SECONDS
        self._due = 0.0
        self._started = 0.0
        self._running: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        """Start the process if it does not run, and its pause is over."""
        now = time.monotonic()
        if self._running is not None and self._running.poll() is not None:
            self._pause = (
                FIRST_PAUSE_SECONDS if now - self._started > STEADY_SECONDS else min(2 * self._pause, MAX_PAUSE_SECONDS)
            )
            self._running, self._due = None, now + self._pause
            print(f"peeklock-worker: a process died, and starts again in {self._pause:g} s", file=sys.stderr)
        if self._running is None and now >= self._due:
            self._running, self._started = subprocess.Popen(self._command), now

    def end(self) -> None:
        """Ask the process to stop in order."""
        if self._running is not None and self._running.poll() is None:
            self._running.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Return once the process has ended."""
        if self._running is not None:
            self._running.wait()
            self._running = None


class Supervisor:
    """Runs processes until SIGTERM or SIGINT, or with `reload` until a Python file changes, and then again."""

    def __init__(self, arguments: Sequence[str], processes: int, port: int | None, *, reload: bool) -> None:
        ports = [[] if port is None else [f"--port={port + index}"] for index in range(processes)]
        command = (sys.executable, "-m", "peeklock_client")
        self._processes = [Process([*command, *arguments, *listening]) for listening in ports]
        self._reload = reload
        self._stopping = threading.Event()

    def run(self) -> int:
        """Run until a signal, and return 0."""
        for kind in (signal.SIGTERM, signal.SIGINT):
            signal.signal(kind, self._stop)
        seen = dict(_python_files()) if self._reload else {}
        while not self._stopping.is_set():
            for process in self._processes:
                process.keep_running()
            self._stopping.wait(POLL_SECONDS)
            if self._reload and (now := dict(_python_files())) != seen:
                seen = now
                self._end_all()
        self._end_all()
        return 0

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping.set()

    def _end_all(self) -> None:
        for process in self._processes:
            process.end()
        for process in self._processes:
            process.wait()


def _python_files() -> Iterator[tuple[str, int]]:
    """Yield each Python file below this directory, and when it changed. Directories with a dot are left out."""
    for directory, inner, names in os.walk("."):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for name in names:
            if name.endswith(".py"):
                path = Path(directory, name)
                yield str(path), path.stat().st_mtime_ns
