"""A server and a terminal for the tests of the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NoReturn

import pytest

from app.cli import app
from tests.databases import RunResources
from tests.peeklock_process import PeeklockProcess, environment, services


def run_command(
    *arguments: str, directory: Path, stdin: bytes = b"", **settings: object
) -> subprocess.CompletedProcess[str]:
    """Run a command as `run_peeklock` does, but in a fork of this process, which saves the imports: 0.4 s each."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        child = _fork()
        if child == 0:
            _run_and_exit(arguments, directory, environment(**settings), (given, out, err))
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        code = os.waitstatus_to_exitcode(status)
        return subprocess.CompletedProcess(arguments, code, out.read().decode(), err.read().decode())


def _fork() -> int:
    """Fork without the warning that this process has a second thread: the timer of a test, which holds no lock."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _run_and_exit(
    arguments: Sequence[str], directory: Path, settings: Mapping[str, str], streams: Sequence[IO[bytes]]
) -> NoReturn:
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream.fileno(), number)
        sys.stdin, sys.stdout, sys.stderr = (TextIOWrapper(stream, encoding="utf-8") for stream in streams)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(settings)
        app(arguments, prog_name="peeklock")
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001 - the end of a process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class CommandLine:
    """A command line that runs `peeklock ...` with one server."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return run_command(*arguments, directory=self.directory, stdin=stdin, url=self.url)

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
def service(run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeeklockProcess]:
    """A server with its own SQLite database."""
    service = PeeklockProcess(run_resources.with_tables(tmp_path_factory.mktemp("served")))
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
