"""A server and a terminal for the tests of the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peeklock_process import PeeklockProcess, run_peeklock, services


class CommandLine:
    """A command line that runs `peeklock ...` with one server."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return run_peeklock(*arguments, directory=self.directory, stdin=stdin, url=self.url)

    def run_ok(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run a command that must succeed, and return its output."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def read_json(self, *arguments: str, stdin: bytes = b"") -> list[Any]:
        """Run a command with `--json` that must succeed, and return its documents, one per line."""
        return [json.loads(line) for line in self.run_ok(*arguments, "--json", stdin=stdin).splitlines()]

    def run_refused(self, *arguments: str) -> str:
        """Run a command that must be refused, and return its standard error. Standard output must be empty."""
        done = self.run(*arguments)
        assert (done.returncode, done.stdout) == (1, ""), done
        return done.stderr


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeeklockProcess]:
    """A server with its own SQLite database."""
    service = PeeklockProcess(tmp_path_factory.mktemp("served"))
    yield service
    service.end()


@pytest.fixture
def command_line(service: PeeklockProcess, tmp_path: Path) -> CommandLine:
    """A command line with that server."""
    return CommandLine(tmp_path, service.url)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., PeeklockProcess]]:
    """Start servers in this test's directory: `serve("--workers=1", redis_url=...)`."""
    with services(tmp_path) as start:
        yield start
