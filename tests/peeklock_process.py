"""Runs the `peeklock` program: one command, or a server that is ready once it logs its URL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from tests.servers import POLL_SECONDS, TIMEOUT_SECONDS, ServerFailed, end_tree

PROGRAM = Path(sys.executable).with_name("peeklock")


@dataclass(frozen=True, slots=True)
class Installation:
    """The command that starts a server, and the directory of the programs that were installed with it."""

    serve: tuple[str | Path, ...]
    programs: Path


TESTED = Installation((PROGRAM, "serve"), PROGRAM.parent)
"""The environment of the tests, which has more than any reader has."""


def environment(**settings: object) -> dict[str, str]:
    """Return the environment with these settings of Peeklock and no others."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PEEKLOCK_")}
    return clean | {f"PEEKLOCK_{name.upper()}": str(value) for name, value in settings.items()}


def run_peeklock(
    *arguments: str, directory: Path, stdin: bytes = b"", **settings: object
) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory with these settings."""
    done = subprocess.run(
        [PROGRAM, *arguments],
        cwd=directory,
        env=environment(**settings),
        input=stdin,
        capture_output=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    return subprocess.CompletedProcess(arguments, done.returncode, done.stdout.decode(), done.stderr.decode())


class PeeklockProcess:
    """`peeklock serve` on a free port, with its output and its log in two files, or both on a terminal.

    What a terminal shows is the output; the log is empty then.
    """

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        installation: Installation = TESTED,
        on_terminal: bool = False,
        **settings: object,
    ) -> None:
        self.directory = directory
        self.programs = installation.programs
        self._on_terminal = on_terminal
        with self._file("out").open("wb") as out, self._file("log").open("wb") as log, ExitStack() as terminal:
            shown = terminal.enter_context(_terminal(self._file("out"))) if on_terminal else None
            self._process = subprocess.Popen(
                [*installation.serve, *arguments],
                cwd=directory,
                env=environment(**{"port": 0, "data_dir": directory / "data", **settings}),
                stdin=subprocess.DEVNULL,
                stdout=out if shown is None else shown,
                stderr=log if shown is None else shown,
                start_new_session=True,
            )
        self.url = self._wait_for_url()

    @property
    def pid(self) -> int:
        """The id of the first process."""
        return self._process.pid

    def output(self) -> str:
        """Return its standard output."""
        return self._file("out").read_text()

    def log(self) -> str:
        """Return its log."""
        return self._file("log").read_text()

    def lines(self) -> list[dict[str, Any]]:
        """Return its log lines as objects. Raises an error for a line that is not JSON."""
        return [json.loads(line) for line in self.log().splitlines()]

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self._process.terminate()

    def wait(self) -> int:
        """Wait for its end, and return its exit status."""
        return self._process.wait(TIMEOUT_SECONDS)

    def end(self) -> None:
        """Kill it with all its processes."""
        if self._process.poll() is None:
            end_tree(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _wait_for_url(self) -> str:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            for line in self.output().splitlines() if self._on_terminal else self.log().splitlines():
                if line.endswith('"message": "listening"}'):
                    return json.loads(line)["url"]
                if line.startswith("Docs: "):  # the last line of the first steps
                    return line.removeprefix("Docs: ").partition("/docs")[0]
            time.sleep(POLL_SECONDS)
        self.end()
        raise ServerFailed(f"peeklock serve did not start:\n{self.log()}{self.output()}")

    def _file(self, name: str) -> Path:
        return self.directory / f"serve.{name}"


@contextmanager
def services(directory: Path, installation: Installation = TESTED) -> Iterator[Callable[..., PeeklockProcess]]:
    """Start servers in a directory: `start("--workers=1", redis_url=...)`. All are killed at the end."""
    started: list[PeeklockProcess] = []

    def start(*arguments: str, on_terminal: bool = False, **settings: object) -> PeeklockProcess:
        server = PeeklockProcess(directory, *arguments, installation=installation, on_terminal=on_terminal, **settings)
        started.append(server)
        return server

    yield start
    for service in started:
        service.end()


@contextmanager
def _terminal(file: Path) -> Iterator[int]:
    """Open a terminal that writes what it shows to a file until the last process closes it. Yield its inner end."""
    outer, inner = os.openpty()

    def copy() -> None:
        with os.fdopen(outer, "rb", buffering=0) as screen, file.open("ab", buffering=0) as shown, suppress(OSError):
            while piece := screen.read(4096):  # raises `OSError` once the inner end is closed
                shown.write(piece)

    Thread(target=copy, name="terminal", daemon=True).start()
    try:
        yield inner
    finally:
        os.close(inner)
