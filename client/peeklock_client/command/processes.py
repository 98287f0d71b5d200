"""Runs a worker in several processes, restarts a process that dies, and stops all together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from peeklock_client.errors import PeeklockError

WORKER_NOT_FOUND = 2
"""The exit code of a process whose target names no worker. Restarting it does not help."""

POLL_SECONDS = 0.5
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0
"""The pause before a process is restarted. It doubles after each further death."""

STEADY_SECONDS = 60.0
"""After a run of this length, the pause is the first one again."""


KILL_SECONDS = 60.0
"""How long a process may take to settle its messages after the grace time. Then it is killed."""


class ReloadMissing(PeeklockError):
    """`--reload` is given, but watchfiles is not installed."""


class Process:
    """One process, with the time of its next restart."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._pause = FIRST_PAUSE_SECONDS
        self._due = 0.0
        self._started = 0.0
        self._running: subprocess.Popen[bytes] | None = None
        self.worker_not_found = False

    def keep_running(self, now: float) -> None:
        """Start the process if it does not run and its pause is over. `now` is the time of a monotonic clock."""
        if self._running is not None and self._running.poll() is not None:
            pause = FIRST_PAUSE_SECONDS if now - self._started > STEADY_SECONDS else self._pause
            self.worker_not_found = self._running.returncode == WORKER_NOT_FOUND
            self._running, self._due, self._pause = None, now + pause, min(2 * pause, MAX_PAUSE_SECONDS)
            print(f"peeklock-worker: a process died and restarts in {pause:g} s", file=sys.stderr)
        if self._running is None and now >= self._due:
            self._running, self._started = subprocess.Popen(self._command), now

    def end(self) -> None:
        """Ask the process to stop gracefully."""
        if self._running is not None and self._running.poll() is None:
            self._running.send_signal(signal.SIGTERM)

    def wait(self, deadline: float) -> None:
        """Return once the process has ended. Kill it at the deadline. It may be restarted without a pause."""
        if self._running is not None:
            try:
                self._running.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                print("peeklock-worker: a process did not stop in time and is killed", file=sys.stderr)
                self._running.kill()
                self._running.wait()
        self._running, self._pause, self._due = None, FIRST_PAUSE_SECONDS, 0.0


class Supervisor:
    """Runs processes until SIGTERM or SIGINT. With `reload`, it restarts them when a Python file changes."""

    def __init__(
        self, arguments: Sequence[str], processes: int, port: int | None, *, reload: bool, grace_seconds: float
    ) -> None:
        self._stop_seconds = grace_seconds + KILL_SECONDS
        ports = [[] if port is None else [f"--port={port + index}"] for index in range(processes)]
        numbers = [[f"--process={index + 1}"] for index in range(processes)]
        command = (sys.executable, "-m", "peeklock_client", f"--supervisor={os.getpid()}")
        self._processes = [
            Process([*command, *arguments, *number, *listening])
            for number, listening in zip(numbers, ports, strict=True)
        ]
        self._stopping = threading.Event()
        self._reloads = reload
        self._changes = _changes_of_code(self._stopping) if reload else self._no_changes()

    def run(self) -> int:
        """Run until a signal, and return 0. Return `WORKER_NOT_FOUND` if the worker is not found, unless `reload` is set."""
        for kind in (signal.SIGTERM, signal.SIGINT):
            signal.signal(kind, self._stop)
        try:
            self._start_all()
            for has_changed in self._changes:
                if has_changed:
                    self._end_all()
                self._start_all()
                if not self._reloads and any(process.worker_not_found for process in self._processes):
                    return WORKER_NOT_FOUND
        finally:
            self._end_all()
        return 0

    def _no_changes(self) -> Iterator[bool]:
        while not self._stopping.wait(POLL_SECONDS):
            yield False

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping.set()

    def _start_all(self) -> None:
        for process in self._processes:
            process.keep_running(time.monotonic())

    def _end_all(self) -> None:
        for process in self._processes:
            process.end()
        deadline = time.monotonic() + self._stop_seconds
        for process in self._processes:
            process.wait(deadline)


def _changes_of_code(stopping: threading.Event) -> Iterator[bool]:
    """Yield regularly until `stopping` whether a Python file in this directory has changed."""
    try:
        from watchfiles import PythonFilter, watch  # noqa: PLC0415  # an extra
    except ImportError:
        raise ReloadMissing("--reload needs watchfiles: pip install 'peeklock-client[reload]'") from None
    milliseconds = int(1000 * POLL_SECONDS)
    changes = watch(
        ".", watch_filter=PythonFilter(), stop_event=stopping, rust_timeout=milliseconds, yield_on_timeout=True
    )
    return map(bool, changes)
