"""Private database servers: started on a free port in a directory, stopped, killed or paused by a test, ended by pid."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pymysql
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

EXTRA_PROGRAM_PATHS = ("usr/lib/postgresql/*/bin", "usr/sbin", "usr/local/sbin")  # where Debian installs its servers
PROCESS_FILE = "process.json"  # in a server's directory: the data to end it
TIMEOUT_SECONDS = 60.0  # seconds a server may take to start or to end on a busy machine
POLL_SECONDS = 0.02  # seconds between two polls of a server that starts or ends

MAX_WORKERS = 16
"""More than a test run has workers."""
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % MAX_WORKERS
OWN_PORTS = list(range(10_000 + WORKER, 32_768, MAX_WORKERS))
"""Below the ports that operating systems choose themselves."""


class ServerFailed(Exception):
    """A server did not start or did not end; the text contains the end of its log."""


class ServerProcess(ABC):
    """One private server. `start` returns once it answers; a killed one may be started again on the same data."""

    kind: ClassVar[str]
    title: ClassVar[str]
    program: ClassVar[str]
    system_user: ClassVar[str | None] = None  # the account to use when root, which the program refuses
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, directory: Path, *options: str, port: int | None = None) -> None:
        self.directory = directory
        self.port = port or free_port()
        self.options = options
        self._process: subprocess.Popen[Any] | None = None

    @classmethod
    def installed(cls) -> bool:
        """Whether this machine has the program."""
        return find_program(cls.program) is not None

    @property
    @abstractmethod
    def url(self) -> str:
        """The address of the server, with the right to create databases."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it serves a client now."""

    @abstractmethod
    def initialise(self, data: Path) -> None:
        """Fill the empty data directory."""

    @abstractmethod
    def command(self, data: Path) -> Sequence[str]:
        """Return the command line that serves this data in the foreground."""

    @property
    def pid(self) -> int:
        """The id of the first process."""
        if self._process is None:
            raise ServerFailed(f"{self.title} is not running")
        return self._process.pid

    def start(self) -> None:
        """Start on existing or new data; return once the server answers."""
        data = self.directory / "data"
        if not data.exists():
            self._own_directory(data)
            self.initialise(data)
        program, *arguments = self.command(data)
        with (self.directory / "log").open("ab") as log:
            process = self._process = subprocess.Popen(
                [_program(program), *arguments],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._identity(),
            )
        _record_process(self.directory, process.pid, self.stop_signal)
        _wait(lambda: self.is_ready() or process.poll() is not None)
        if not self.is_ready():
            raise ServerFailed(f"{self.title} did not start:\n{self.log()}")

    def stop(self) -> None:
        """Stop it as an administrator would, and wait for its end."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """Kill the whole process tree at once, as a power cut would."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend the whole process tree: clients connect and wait."""
        _signal(_tree(self.pid), signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused server."""
        _signal(_tree(self.pid), signal.SIGCONT)

    def log(self) -> str:
        """Return the end of the server's log."""
        return (self.directory / "log").read_text(errors="replace")[-4000:]

    def run(self, *command: str) -> None:
        """Run one of the server's own tools under its account."""
        command = (_program(command[0]), *command[1:])
        done = subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, check=False, **self._identity()
        )
        if done.returncode != 0:
            raise ServerFailed(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")

    def _end(self, first: signal.Signals) -> None:
        if self._process is not None:
            end_tree(self._process.pid, first)
            self._process.wait()
            self._process = None

    def _identity(self) -> dict[str, Any]:
        """Return the arguments of subprocess that switch to the server's account; empty unless root."""
        if self.system_user is None or os.geteuid() != 0:
            return {}
        return {"user": self.system_user, "group": pwd.getpwnam(self.system_user).pw_gid, "extra_groups": ()}

    def _own_directory(self, data: Path) -> None:
        data.mkdir(parents=True, mode=0o700)
        if identity := self._identity():
            self.directory.chmod(0o755)
            for path in (self.directory, data):
                os.chown(path, pwd.getpwnam(identity["user"]).pw_uid, identity["group"])


class PostgresServer(ServerProcess):
    """PostgreSQL with its default durability; sockets and log in the directory."""

    kind, title, program, system_user = "postgresql", "PostgreSQL", "postgres", "postgres"
    stop_signal = signal.SIGINT  # "fast": roll back, close, write a checkpoint

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def is_ready(self) -> bool:
        question = [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(question, check=False).returncode == 0

    def initialise(self, data: Path) -> None:
        self.run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")

    def command(self, data: Path) -> Sequence[str]:
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self.directory)]
        return ["postgres", "-D", str(data), *options, "-c", "max_connections=200", *self.options]


class MariaServer(ServerProcess):
    """MariaDB with its default durability, without the machine's configuration."""

    kind, title, program, system_user = "mariadb", "MariaDB", "mariadbd", "mysql"

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/"

    def is_ready(self) -> bool:
        with contextlib.suppress(pymysql.err.OperationalError):
            pymysql.connect(host="127.0.0.1", port=self.port, user="root", connect_timeout=5, read_timeout=5).close()
            return True
        return False

    def initialise(self, data: Path) -> None:
        install = ("mariadb-install-db", "--no-defaults", f"--datadir={data}", f"--tmpdir={self.directory}")
        self.run(*install, "--skip-test-db", "--auth-root-authentication-method=normal")

    def command(self, data: Path) -> Sequence[str]:
        # A private directory for temporary tables: at its start a server removes all that it finds, even of other servers.
        own = [
            f"--datadir={data}",
            f"--tmpdir={self.directory}",
            f"--socket={self.directory}/socket",
            f"--pid-file={self.directory}/pid",
        ]
        reach = ["--bind-address=127.0.0.1", f"--port={self.port}", "--skip-name-resolve", "--max-connections=200"]
        return ["mariadbd", "--no-defaults", *own, *reach, *self.options]


class RedisServer(ServerProcess):
    """Redis without persistence: after a restart it is empty, as a lock store may be."""

    kind, title, program = "redis", "Redis", "redis-server"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def is_ready(self) -> bool:
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            once = Retry(NoBackoff(), retries=0)
            with redis.Redis(port=self.port, socket_timeout=5, socket_connect_timeout=5, retry=once) as client:
                return bool(client.ping())
        return False

    def initialise(self, data: Path) -> None:
        """Nothing to fill."""

    def command(self, data: Path) -> Sequence[str]:
        keep_nothing = ["--save", "", "--appendonly", "no", "--dir", str(data)]
        reach = ["--bind", "127.0.0.1", "--port", str(self.port), "--databases", "64"]
        return ["redis-server", *keep_nothing, *reach, *self.options]


KINDS: dict[str, type[ServerProcess]] = {server.kind: server for server in (PostgresServer, MariaServer, RedisServer)}


def find_program(name: str) -> str | None:
    """Return the path of a server program, also outside PATH, where Debian installs some of them."""
    newest_first = sorted((path for pattern in EXTRA_PROGRAM_PATHS for path in Path("/").glob(pattern)), reverse=True)
    return shutil.which(name, path=os.pathsep.join([*map(str, newest_first), os.environ.get("PATH", os.defpath)]))


def free_port() -> int:
    """Return a TCP port without a listener, which stays free until a server takes it and while that server restarts.

    The operating system gives none of these ports to a connection or to a listener that names no port. Each worker of a
    test run has ports of its own, and uses none twice.
    """
    while True:
        port = secrets.choice(OWN_PORTS)  # fails if none is left
        OWN_PORTS.remove(port)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def end_recorded(directory: Path) -> None:
    """End the server that was started in this directory, if it still runs."""
    note = json.loads((directory / PROCESS_FILE).read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        if psutil.Process(note["pid"]).create_time() == note["born"]:  # and no later process with the same id
            end_tree(note["pid"], signal.Signals(note["gentle"]))


def end_tree(pid: int, first: signal.Signals) -> None:
    """End a process tree: the parent with this signal, the remaining processes with SIGKILL."""
    tree = _tree(pid)
    if first != signal.SIGKILL:
        _signal(tree[:1], first)
        _signal(tree, signal.SIGCONT)  # a paused process must resume to receive it
        _wait(lambda: _have_exited(tree[:1]))
    _signal(tree, signal.SIGKILL)
    _wait(lambda: _have_exited(tree))
    with contextlib.suppress(ChildProcessError):  # another process of this test run started it
        os.waitpid(pid, 0)


def _record_process(directory: Path, pid: int, stop_signal: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        born = psutil.Process(pid).create_time()
        (directory / PROCESS_FILE).write_text(json.dumps({"pid": pid, "born": born, "gentle": stop_signal}))


def _tree(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def _signal(processes: Sequence[psutil.Process], what: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(what)


def _have_exited(processes: Sequence[psutil.Process]) -> bool:
    """Whether the processes have ended. One that only waits to be reaped by its parent has ended."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                return False
    return True


def _program(name: str) -> str:
    return find_program(name) or name


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise ServerFailed(f"nothing happened for {TIMEOUT_SECONDS:.0f} seconds")
        time.sleep(POLL_SECONDS)
