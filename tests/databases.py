"""Finds or starts the servers of a test run, and creates and drops its databases."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from app.store.migrate import migrate
from tests.server_drivers import DRIVERS, ServerUnusable, run_in_thread
from tests.servers import KINDS, PROCESS_FILE, ServerProcess, end_recorded

PREFIX = "peeklock-tests-"
STARTED_HERE = "started for this run"


class ServerMissing(Exception):
    """A server that the tests need is not configured, does not answer, and is not installed."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"no {KINDS[kind].title} here: name one in {DRIVERS[kind].url_variable}, let `python3 dev.py test` install it, "
            f"or leave it out with --without={kind}"
        )


@dataclass(frozen=True, slots=True)
class FoundServer:
    """One server of this run: its address and its origin."""

    kind: str
    url: str
    origin: str

    def __str__(self) -> str:
        return f"{DRIVERS[self.kind].version(self.url)}, {self.origin}"


class RunResources:
    """The shared directory of one test run, with a file for each server that was used."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: list[ServerProcess] = []  # held, because a dropped process object warns
        self._databases = 0

    @classmethod
    def begin(cls) -> RunResources:
        """Create the shared directory, and remove those of killed runs."""
        for leftovers in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            # Another run may remove it now, or may have created it without its mark yet.
            with contextlib.suppress(FileNotFoundError, ValueError):
                if not psutil.pid_exists(int((leftovers / "owner").read_text())):
                    cls(leftovers).end()
        directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        directory.chmod(0o755)  # the servers' accounts must have access
        (directory / "owner").write_text(str(os.getpid()))
        return cls(directory)

    def end(self) -> None:
        """Drop the templates, stop every server below the directory, and remove the directory."""
        for found in self.found():
            template = self.directory / f"{found.kind}.template"
            if template.exists() and found.origin != STARTED_HERE:
                with contextlib.suppress(ServerUnusable):
                    DRIVERS[found.kind].drop(template.read_text())
        for record in self.directory.glob(f"*/{PROCESS_FILE}"):
            end_recorded(record.parent)
        shutil.rmtree(self.directory)

    def found(self) -> list[FoundServer]:
        """Return the servers that were used so far."""
        records = sorted(self.directory.glob("*.server"))
        return [FoundServer(**json.loads(record.read_text())) for record in records]

    def new_directory(self) -> Path:
        """Return a directory for a private server, which ends at the latest with the run."""
        return Path(tempfile.mkdtemp(prefix="private-", dir=self.directory))

    def server(self, kind: str) -> FoundServer:
        """Return the run's server of this kind. The first process that needs it finds or starts it."""
        record = self.directory / f"{kind}.server"
        with self._lock(kind):
            if not record.exists():
                record.write_text(json.dumps(asdict(find(kind) or self._start(kind))))
            return FoundServer(**json.loads(record.read_text()))

    @contextlib.contextmanager
    def empty_database(self, kind: str) -> Iterator[str]:
        """Yield the address of a new database without tables, and drop it afterwards."""
        database = DRIVERS[kind].create(self.server(kind).url, self._new_name())
        try:
            yield database
        finally:
            DRIVERS[kind].drop(database)

    @contextlib.contextmanager
    def migrated_database(self, kind: str) -> Iterator[str]:
        """Yield the address of a new database with current tables, and drop it afterwards."""
        database = DRIVERS[kind].copy(self._template(kind), self._new_name())
        try:
            yield database
        finally:
            DRIVERS[kind].drop(database)

    def sqlite_template(self) -> Path:
        """Return a migrated SQLite file to copy. The run makes it once."""
        file = self.directory / "template.sqlite3"
        with self._lock("sqlite"):
            if not file.exists():
                run_in_thread(lambda: migrate(f"sqlite:///{file}"))
            return file

    def with_tables(self, directory: Path) -> Path:
        """Copy a migrated file to where a server in this directory has its own, which saves the migrations."""
        data = directory / "data"
        data.mkdir()
        shutil.copy(self.sqlite_template(), data / "peeklock.db")
        return directory

    def made_once(self, name: str, make: Callable[[Path], None]) -> Path:
        """Return a directory that `make` has filled. The first process that needs it does so for the whole run."""
        directory, mark = self.directory / name, self.directory / f"{name}.made"
        with self._lock(name):
            if not mark.exists():
                shutil.rmtree(directory, ignore_errors=True)
                directory.mkdir()
                make(directory)
                mark.touch()
            return directory

    def _template(self, kind: str) -> str:
        """Return the migrated database that the others are copied from. The run makes it once."""
        server, record = self.server(kind), self.directory / f"{kind}.template"
        with self._lock(kind):
            if not record.exists():
                template = DRIVERS[kind].create(server.url, f"{self._new_name()}_template")
                record.write_text(template)
                run_in_thread(lambda: migrate(template))
            return record.read_text()

    def _start(self, kind: str) -> FoundServer:
        if not KINDS[kind].installed():
            raise ServerMissing(kind)
        server = KINDS[kind](self.directory / kind)
        server.start()
        self._started.append(server)
        return FoundServer(kind, server.url, STARTED_HERE)

    def _new_name(self) -> str:
        self._databases += 1
        return f"peeklock_test_{os.getpid()}_{self._databases}"

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        with (self.directory / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def find(kind: str) -> FoundServer | None:
    """Return the server of the environment, else one on the standard port that accepts a login."""
    engine = DRIVERS[kind]
    if given := os.environ.get(engine.url_variable):
        engine.check_usable(given)
        return FoundServer(kind, given, f"given by {engine.url_variable}")
    for url in engine.default_urls:
        with contextlib.suppress(ServerUnusable):
            engine.check_usable(url)
            return FoundServer(kind, url, "found on its standard port")
    return None


if __name__ == "__main__":  # run by `dev.py test`: which servers must be installed?
    sys.stdout.writelines(f"{kind}\n" for kind in KINDS if not KINDS[kind].installed() and find(kind) is None)
