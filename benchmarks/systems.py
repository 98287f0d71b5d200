"""The systems under test, started on free ports of the loopback interface and ended with the run."""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO
from urllib.error import URLError
from urllib.request import Request, urlopen

from app.store.migrate import migrate
from benchmarks.load import Target
from benchmarks.machine import cpu_seconds, process_tree
from benchmarks.references.hand_written import SqlTarget
from tests.servers import PostgresServer, RedisServer, ServerProcess, free_port

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_SECONDS = 60.0
SERVE = (sys.executable, "-m", "app.cli", "serve")
"""Serves this checkout; an installed command may belong to another one."""


@dataclass(frozen=True, slots=True)
class System:
    """A server under load, with the processes whose CPU counts, by kind."""

    name: str
    target: Target | SqlTarget
    processes: dict[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def database_url(self) -> str:
        """The database of its messages, for a system over PostgreSQL."""
        return self.settings["PEEKLOCK_DATABASE_URL"]

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by process."""
        return {part: cpu_seconds([pid]) for part, pid in self.processes.items()}

    def total_cpu(self) -> float:
        """CPU seconds so far of all of them."""
        return sum(self.cpu().values())

    @property
    def pid(self) -> int:
        """The process that speaks HTTP."""
        return self.processes["server"]

    def pause(self) -> None:
        """Stop its own processes, but not its stores."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let its processes continue."""
        self._signal(signal.SIGCONT)

    def _signal(self, what: signal.Signals) -> None:
        if "server" in self.processes:
            for pid in process_tree([self.pid]):
                os.kill(pid, what)

    def with_queue(self, queue: str) -> "System":
        """The same system, loaded on another queue."""
        return replace(self, target=replace(self.target, queue=queue))


@contextmanager
def servers(folder: Path) -> Iterator[tuple[PostgresServer, RedisServer]]:
    """PostgreSQL with fsync on, and Redis."""
    with ExitStack() as running:
        started: list[ServerProcess] = []
        for kind in (PostgresServer, RedisServer):
            place = folder / kind.kind
            place.mkdir(parents=True)
            server = kind(place)
            server.start()
            running.callback(server.stop)
            started.append(server)
        postgres, redis = started
        assert isinstance(postgres, PostgresServer)
        assert isinstance(redis, RedisServer)
        yield postgres, redis


@contextmanager
def peeklock(
    folder: Path,
    postgres: PostgresServer | None,
    redis: RedisServer | None,
    *,
    workers: int = 1,
    database: str = "bench",
    command: Sequence[str] = SERVE,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[System]:
    """Peeklock with an API key and more settings, over PostgreSQL and Redis or, without them, SQLite."""
    settings = {
        "PEEKLOCK_BOOTSTRAP_KEY": "pk_" + secrets.token_urlsafe(32),
        "PEEKLOCK_WORKERS": str(workers),
        "PEEKLOCK_LOG_LEVEL": "warning",
        "PEEKLOCK_AUTO_CREATE_QUEUES": "true",
        **more,
    }
    processes: dict[str, int] = {}
    with ExitStack() as stores:
        if postgres is None:
            settings["PEEKLOCK_DATA_DIR"] = str(folder)
        else:
            settings["PEEKLOCK_DATABASE_URL"] = stores.enter_context(empty_database(postgres, database))
            migrate(settings["PEEKLOCK_DATABASE_URL"])
            processes["postgresql"] = postgres.pid
        if redis is not None:
            settings["PEEKLOCK_REDIS_URL"] = redis.url
            # A prefix belongs to one database, and each row has a new one.
            settings["PEEKLOCK_REDIS_PREFIX"] = f"{database}-{secrets.token_hex(4)}:"
            processes["redis"] = redis.pid
        yield stores.enter_context(_serving("peeklock", command, settings, processes))


@contextmanager
def second_server(system: System) -> Iterator[System]:
    """A second server on a port of its own, over the same database, Redis and key; the stores count for both."""
    stores = {part: pid for part, pid in system.processes.items() if part != "server"}
    with _serving(f"another {system.name}", SERVE, system.settings, stores) as second:
        yield second


@contextmanager
def _serving(
    name: str, command: Sequence[str], settings: Mapping[str, str], stores: Mapping[str, int]
) -> Iterator[System]:
    headers = {"authorization": f"Bearer {settings['PEEKLOCK_BOOTSTRAP_KEY']}"}
    port = free_port()
    with _running(command, {**settings, "PEEKLOCK_PORT": str(port)}, port, "/readyz") as pid:
        yield System(name, Target("127.0.0.1", port, headers=headers), {"server": pid, **stores}, settings)


@contextmanager
def reference(module: str, postgres: PostgresServer | None = None, sqlite: Path | None = None) -> Iterator[System]:
    """One of `references/`, under the same uvicorn."""
    environment: dict[str, str] = {}
    processes: dict[str, int] = {}
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", f"benchmarks.references.{module}:app", f"--port={port}"]
    command += ["--loop=uvloop", "--http=httptools", "--no-access-log", "--log-level=warning"]
    with ExitStack() as stores:
        if postgres is not None:
            url = stores.enter_context(empty_database(postgres, "naive"))
            environment["NAIVE_DATABASE_URL"] = url.replace("postgresql://", "postgresql+asyncpg://")
            processes["postgresql"] = postgres.pid
        if sqlite is not None:
            environment["NAIVE_DATABASE_URL"] = f"sqlite+aiosqlite:///{sqlite}"
        pid = stores.enter_context(_running(command, environment, port, "/openapi.json"))
        yield System(module, Target("127.0.0.1", port), {"server": pid, **processes})


@contextmanager
def hand_written_sql(postgres: PostgresServer) -> Iterator[System]:
    """The statements of a lifecycle in a database of their own, without a server in front."""
    with empty_database(postgres, "hand_written") as url:
        migrate(url)
        yield System("hand-written SQL", SqlTarget(url), {"postgresql": postgres.pid})


def call(system: System, method: str, path: str, body: object = None) -> dict[str, object]:
    """One request outside the measured load."""
    data = None if body is None else json.dumps(body).encode()
    url = f"http://{system.target.host}:{system.target.port}{path}"
    request = Request(url, data=data, method=method, headers=system.target.headers)
    with urlopen(request, timeout=600) as answer:
        return dict(json.loads(answer.read() or b"{}"))


def metric(system: System, name: str) -> float:
    """A metric of the server, named with its labels; 0 before its first count."""
    with urlopen(f"http://{system.target.host}:{system.target.port}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name):
                return float(line.rpartition(" ")[2])
    return 0.0


@contextmanager
def empty_database(postgres: PostgresServer, name: str) -> Iterator[str]:
    """The URL of an empty database. It is dropped after the row, because its vacuum would count in the next row."""
    connection_options = ("-h", "127.0.0.1", "-p", str(postgres.port), "-U", "postgres")
    postgres.run("createdb", *connection_options, name)
    try:
        yield postgres.url.rsplit("/", 1)[0] + f"/{name}"
    finally:
        postgres.run("dropdb", *connection_options, "--force", name)


@contextmanager
def _running(command: Sequence[str], environment: Mapping[str, str], port: int, probe: str) -> Iterator[int]:
    with tempfile.TemporaryFile() as output_file:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment}, stdout=output_file, stderr=output_file
        )
        try:
            _wait_until_ready(process, f"http://127.0.0.1:{port}{probe}", output_file)
            yield process.pid
        finally:
            process.terminate()
            process.wait(TIMEOUT_SECONDS)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, output_file: IO[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            output_file.seek(0)
            last_words = output_file.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"the server ended with status {process.returncode} before it was ready: {last_words}")
        try:
            with urlopen(url, timeout=1):
                return
        except URLError:
            time.sleep(0.1)
    raise RuntimeError(f"{url} did not answer in {TIMEOUT_SECONDS:.0f} s")
