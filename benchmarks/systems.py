"""The systems under test, started on free ports of the loopback interface and ended with the run."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import Request, urlopen

import asyncpg

from app.store.migrate import migrate
from benchmarks.load import Target
from benchmarks.machine import cpu_seconds
from tests.servers import PostgresServer, RedisServer, Server, free_port

HERE = Path(__file__).resolve().parent.parent
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class System:
    """A server under load with the processes whose CPU counts, by what they are."""

    name: str
    target: Target
    processes: dict[str, int] = field(default_factory=dict)
    database_url: str = ""

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by process."""
        return {part: cpu_seconds([pid]) for part, pid in self.processes.items()}

    @property
    def pid(self) -> int:
        """The process that speaks HTTP."""
        return self.processes["server"]


@contextmanager
def servers(folder: Path) -> Iterator[tuple[PostgresServer, RedisServer]]:
    """PostgreSQL with fsync on, and Redis."""
    with ExitStack() as running:
        started: list[Server] = []
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
) -> Iterator[System]:
    """Peeklock with an API key, over PostgreSQL and Redis or, without them, SQLite."""
    key = "pk_" + secrets.token_urlsafe(32)
    environment = {"PEEKLOCK_BOOTSTRAP_KEY": key, "PEEKLOCK_WORKERS": str(workers), "PEEKLOCK_LOG_LEVEL": "warning"}
    environment["PEEKLOCK_AUTO_CREATE_QUEUES"] = "true"
    processes: dict[str, int] = {}
    if postgres is None:
        environment["PEEKLOCK_DATA_DIR"] = str(folder)
    else:
        environment["PEEKLOCK_DATABASE_URL"] = _fresh_database(postgres, database)
        migrate(environment["PEEKLOCK_DATABASE_URL"])
        processes["postgresql"] = postgres.pid
    if redis is not None:
        environment["PEEKLOCK_REDIS_URL"] = redis.url
        processes["redis"] = redis.pid
    command = [str(Path(sys.executable).with_name("peeklock")), "serve"]
    with _running(command, environment, "/readyz", host_in_environment=True) as (process, port):
        target = Target("127.0.0.1", port, headers={"authorization": f"Bearer {key}"})
        url = environment.get("PEEKLOCK_DATABASE_URL", "")
        yield System("peeklock", target, {"server": process.pid, **processes}, url)


@contextmanager
def reference(module: str, postgres: PostgresServer | None = None, sqlite: Path | None = None) -> Iterator[System]:
    """One of the references of this folder, under the same uvicorn."""
    environment: dict[str, str] = {}
    processes: dict[str, int] = {}
    if postgres is not None:
        url = _fresh_database(postgres, "naive")
        environment["NAIVE_DATABASE_URL"] = url.replace("postgresql://", "postgresql+asyncpg://")
        processes["postgresql"] = postgres.pid
    if sqlite is not None:
        environment["NAIVE_DATABASE_URL"] = f"sqlite+aiosqlite:///{sqlite}"
    command = [sys.executable, "-m", "uvicorn", f"benchmarks.{module}:app", "--no-access-log", "--log-level=warning"]
    command += ["--loop=uvloop", "--http=httptools"]
    with _running(command, environment, "/openapi.json") as (process, port):
        yield System(module, Target("127.0.0.1", port), {"server": process.pid, **processes})


def call(system: System, method: str, path: str, body: object = None) -> dict[str, object]:
    """One request outside the measured load."""
    data = None if body is None else json.dumps(body).encode()
    url = f"http://{system.target.host}:{system.target.port}{path}"
    request = Request(url, data=data, method=method, headers=system.target.headers)
    with urlopen(request, timeout=600) as answer:
        return dict(json.loads(answer.read() or b"{}"))


async def sql(system: System, statement: str) -> None:
    """One statement on a system's database, to fill it faster than over HTTP."""
    connection = await asyncpg.connect(system.database_url)
    try:
        await connection.execute(statement, timeout=600)
    finally:
        await connection.close()


def _fresh_database(postgres: PostgresServer, name: str) -> str:
    postgres.run(
        "dropdb", "-h", "127.0.0.1", "-p", str(postgres.port), "-U", "postgres", "--force", "--if-exists", name
    )
    postgres.run("createdb", "-h", "127.0.0.1", "-p", str(postgres.port), "-U", "postgres", name)
    return postgres.url.rsplit("/", 1)[0] + f"/{name}"


@contextmanager
def _running(
    command: list[str], environment: dict[str, str], probe: str, *, host_in_environment: bool = False
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    if host_in_environment:
        environment["PEEKLOCK_PORT"] = str(port)
    else:
        command = [*command, f"--port={port}"]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, cwd=HERE, env={**os.environ, **environment}, stdout=said, stderr=said)
        try:
            _wait_until_ready(process, f"http://127.0.0.1:{port}{probe}", said)
            yield process, port
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, said: IO[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said.seek(0)
            last_words = said.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"the server ended with status {process.returncode} before it was ready: {last_words}")
        try:
            with urlopen(url, timeout=1):
                return
        except URLError:
            time.sleep(0.1)
    raise RuntimeError(f"{url} did not answer in {PATIENCE_SECONDS:.0f} s")
