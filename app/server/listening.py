"""Opens a server's port and runs its processes on it. The URL is shown once all processes answer."""

import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import structlog
import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from app.runtime.shared_numbers import DIRECTORY_VARIABLE, end_process
from app.server.connection_limit import SPARE_CONNECTIONS, LimitedConnection
from app.server.preflight import RefusedToStart
from app.server.shared_metrics import metrics_directory
from app.settings import Settings

KEEP_ALIVE_SECONDS = 90
"""How long an idle connection stays open: longer than proxies keep theirs (usually 60 to 75 s), so that no proxy sends a
request on a connection that the server is closing."""

UNACKNOWLEDGED_SECONDS = 30
"""How long a client may acknowledge none of an answer before its connection is cut and its buffers are freed."""

_READY_SECONDS = 60.0
"""How long the processes of one server may take to start. After that the server reports no URL."""

RESERVED_FILES = 300
"""Open files besides client connections: up to 200 connections to the database, Redis, and files of Python."""

log = structlog.get_logger("peeklock")

OnListening: TypeAlias = Callable[[], None]


def bind(host: str, port: int, unacknowledged_seconds: int = UNACKNOWLEDGED_SECONDS) -> socket.socket:
    """Bind the port, without listening on it yet. Raises `RefusedToStart` if that fails."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name like localhost may have an address of each family. One port is enough, and IPv4 always exists.
        family, kind, protocol, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # where the kernel has it; connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unacknowledged_seconds * 1000)
        listener.bind(address)
    except UnicodeError as error:  # raised before the look-up, for a name that no host can have
        raise _cannot_listen(host, port, "this is not a host name") from error
    except OSError as error:
        raise _cannot_listen(host, port, error.strerror) from error
    listener.set_inheritable(True)
    return listener


def _cannot_listen(host: str, port: int, reason: str | None) -> RefusedToStart:
    return RefusedToStart(
        f"Cannot listen on {host} port {port}: {reason}. "
        "Choose others with PEEKLOCK_HOST and PEEKLOCK_PORT; port 0 takes a free one."
    )


def run(settings: Settings, listener: socket.socket, on_ready: Callable[[str], None]) -> int:
    """Serve on a bound port until a stop signal, and return the exit status. `on_ready` gets the URL once it answers."""
    report_ready = partial(on_ready, _url(settings.host, listener.getsockname()[1]))

    raise_file_limit(settings.max_connections + SPARE_CONNECTIONS + RESERVED_FILES)
    # uvicorn raises the signal that stopped it again. An orderly stop exits with status 0.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    config = _config(settings)
    try:
        if settings.workers > 1:
            return _run_process_group(config, listener, report_ready)
        _SingleProcess(config, report_ready).run([listener])
    except KeyboardInterrupt:
        pass  # an orderly stop too
    return 0


def raise_file_limit(wanted: int) -> None:
    """Raise the limit of open files to `wanted`, or as far as the operating system allows. Log both numbers if it is less."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):  # a sandbox, or a limit of the kernel below the hard limit
        allowed = soft
    if allowed < wanted:
        log.warning("fewer open files are allowed than PEEKLOCK_MAX_CONNECTIONS needs", allowed=allowed, needed=wanted)


class _SingleProcess(uvicorn.Server):
    """The only server process; calls `on_listening` once it listens."""

    def __init__(self, config: uvicorn.Config, on_listening: OnListening) -> None:
        super().__init__(config)
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and call `on_listening`."""
        await super().startup(sockets)
        self._on_listening()


class _SignalArrival(threading.Event):
    """An event that is set while a signal waits to be handled."""

    def __init__(self, waiting: Sequence[int]) -> None:
        super().__init__()
        self._waiting = waiting

    def is_set(self) -> bool:
        """Return whether a signal waits."""
        return bool(self._waiting)


class _ProcessGroup(Multiprocess):
    """The parent of several server processes; calls `on_listening` once all of them listen."""

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, on_listening: OnListening, directory: Path
    ) -> None:
        super().__init__(config, [listener])
        self._directory = directory
        self._on_listening = on_listening
        self._has_signal = _SignalArrival(self.signal_queue)

    def init_processes(self) -> None:
        """Start the processes, and call `on_listening` once all are ready."""
        super().init_processes()
        if all(process.wait_until_ready(_READY_SECONDS) for process in self.processes):
            self._on_listening()

    def keep_subprocess_alive(self) -> None:
        """Replace processes that have ended, and take what they were doing out of the metrics.

        Return when the new ones serve. A process that starts answers no health check, and would be replaced again.
        """
        before = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        for pid in filter(None, before - {process.pid for process in self.processes}):
            end_process(self._directory, pid)
        for process in self.processes:
            if process.pid not in before:
                process.wait_until_ready(_READY_SECONDS, self._has_signal)

    def terminate_all(self) -> None:
        """Stop the processes, and close the port here: a client that connected to the parent's socket would wait for an
        answer until the last process has ended."""
        super().terminate_all()
        for listener in self.sockets:
            listener.close()

    @property
    def has_failed(self) -> bool:
        """Whether a process ended because it could not start."""
        return any(process.exitcode == STARTUP_FAILURE for process in self.processes)


def _run_process_group(config: uvicorn.Config, listener: socket.socket, on_listening: OnListening) -> int:
    with metrics_directory() as directory:
        os.environ[DIRECTORY_VARIABLE] = str(directory)
        group = _ProcessGroup(config, listener, on_listening, directory)
        group.run()
    return STARTUP_FAILURE if group.has_failed else 0


def _config(settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        "app.main:create",
        factory=True,
        # uvicorn takes only coroutine functions for ASGI 3, and other functions that return an awaitable for ASGI 2.
        interface="asgi3",
        workers=settings.workers,
        loop="uvloop",
        http=LimitedConnection,
        limit_concurrency=settings.max_connections,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        # Nothing uses the address of a client, so the headers of proxies are not read.
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.shutdown_grace_seconds),
    )


def _url(host: str, port: int) -> str:
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
    # In a URL, the percent sign before a zone is escaped (RFC 6874).
    return f"http://[{host.replace('%', '%25')}]:{port}" if ":" in host else f"http://{host}:{port}"
