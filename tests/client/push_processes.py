"""Starts `peeklock-worker --push` and its target as processes of their own."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.peeklock_process import environment
from tests.servers import TIMEOUT_SECONDS, free_port

SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"


class PushProcesses:
    """The processes of one test. `end` kills those that still run."""

    def __init__(self, server_url: str, directory: Path) -> None:
        self.port = free_port()
        self.log = directory / "received.log"
        self.log.touch()
        self.server_url = server_url
        self._directory = directory
        self._running: list[subprocess.Popen[str]] = []

    @property
    def target(self) -> str:
        """The URL to push to."""
        return f"http://127.0.0.1:{self.port}/hook"

    def start_receiver(self) -> subprocess.Popen[str]:
        """Start the target, and return once it listens. A second one takes the port of the first."""
        command = [sys.executable, "-m", "tests.client.push_receiver", str(self.port), str(self.log), SECRET]
        receiver = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
        self._running.append(receiver)
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        return receiver

    def start_worker(self, *arguments: str, secret: str = SECRET) -> subprocess.Popen[str]:
        """Start the command with these options."""
        variables = environment(url=self.server_url, push_secret=secret)
        command = [sys.executable, "-m", "peeklock_client", *arguments]
        with self._log_of(len(self._running)).open("w") as log:  # a pipe that nothing reads would stop the worker
            worker = subprocess.Popen(command, cwd=self._directory, env=variables, stderr=log, text=True)
        self._running.append(worker)
        return worker

    def wait(self, worker: subprocess.Popen[str]) -> str:
        """Return what a worker has logged, once it has ended."""
        worker.wait(3 * TIMEOUT_SECONDS)
        return self._log_of(self._running.index(worker)).read_text()

    def stop(self, worker: subprocess.Popen[str]) -> str:
        """End a worker in order, and return what it has logged."""
        worker.terminate()
        logged = self.wait(worker)
        assert worker.returncode == 0, logged
        return logged

    def _log_of(self, number: int) -> Path:
        return self._directory / f"worker-{number}.log"

    def push(self, queue: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a worker that pushes a queue to the target."""
        return self.start_worker(f"--push={self.target}", f"--queue={queue}", "--allow-private", *arguments)

    def received(self) -> Counter[str]:
        """Return how often the target answered 200 for each message."""
        return Counter(self.log.read_text().split())

    def end(self) -> None:
        """Kill what still runs."""
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
