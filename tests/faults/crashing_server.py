"""A server that is killed by SIGKILL at one chosen step: before or after a call of a backend, at a COMMIT, or before a reply.

The product is unchanged: the server gets backends that wrap its own. `ForkedServers` forks such servers from a process
that has imported everything, so that a walk over all steps takes seconds each instead of minutes.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import inspect
import multiprocessing
import os
import signal
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import asyncmy.connection
import asyncpg
import uvicorn

from app.http.asgi import Receive, Scope, Send
from app.locks.backend import open_locks
from app.main import Backends, ServerApplication
from app.settings import Settings
from app.store.open import open_store
from app.store.sqlite.store import SqliteStore
from tests.faults.polling import POLL_SECONDS, TIMEOUT_SECONDS, wait_until
from tests.servers import ServerFailed, free_port

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The point of a crash: `component.method`, or the reply to a path with that ending; at the n-th time."""

    component: str
    method: str
    moment: str = "before"
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.moment} {self.component} {self.method} {self.nth}"


class CrashTrigger:
    """Crashes at its step."""

    def __init__(self, step: CrashPoint | None) -> None:
        self._point = step
        self._reached = 0
        self._is_armed = False

    def reach(self, component: str, what: str, moment: str) -> None:
        """Die, if this is the step."""
        step = self._point
        if step is None or (component, what) != (step.component, step.method):
            return
        self._reached += moment == "before"
        if self._reached == step.nth:
            self._is_armed = step.moment == "commit"
            if moment == step.moment:
                die()

    def commit(self) -> None:
        """Die, if the step is the next COMMIT after its call."""
        if self._is_armed:
            die()


NESTED_COMPONENTS = ("queues", "archive", "moves", "transactions")
"""The components of a store."""


class CrashingProxy:
    """A backend that may crash before and after each of its methods."""

    def __init__(self, component: Any, name: str, trigger: CrashTrigger) -> None:
        self._component, self._name, self._trigger = component, name, trigger

    def __getattr__(self, what: str) -> Any:
        found = getattr(self._component, what)
        if what in NESTED_COMPONENTS:
            return CrashingProxy(found, what, self._trigger)
        return self._wrap(found, what) if inspect.iscoroutinefunction(found) else found

    def _wrap(self, method: Callable[..., Any], what: str) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*arguments: Any, **values: Any) -> Any:
            self._trigger.reach(self._name, what, "before")
            answer = await method(*arguments, **values)
            self._trigger.reach(self._name, what, "after")
            return answer

        return call


def die() -> None:
    """End this process at once, as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def crashing_backends(trigger: CrashTrigger) -> Backends:
    """Return backends that crash at their steps."""

    async def open_wrapped_store(*arguments: Any, **values: Any) -> Any:
        store = await open_store(*arguments, **values)
        if isinstance(store, SqliteStore):
            await store.database.call_on_writer(lambda writer: _trace_commits(writer, trigger))
        return CrashingProxy(store, "store", trigger)

    def open_wrapped_locks(*arguments: Any, **values: Any) -> Any:
        component = open_locks(*arguments, **values)
        return replace(component, locks=CrashingProxy(component.locks, "locks", trigger))

    return Backends(open_wrapped_store, open_wrapped_locks)


def crash_at_commits_on_postgresql(trigger: CrashTrigger) -> None:
    """Make the driver of this process crash at the COMMIT of the step."""
    execute = asyncpg.Connection.execute

    async def execute_wrapped(self: Any, query: str, *arguments: Any, **values: Any) -> Any:
        if query == "COMMIT":
            trigger.commit()
        return await execute(self, query, *arguments, **values)

    asyncpg.Connection.execute = execute_wrapped


def crash_at_commits_on_mysql(trigger: CrashTrigger) -> None:
    """The same for the driver of MariaDB and MySQL, where a COMMIT ends the last round trip of its transaction."""
    query = asyncmy.connection.Connection.query

    async def query_wrapped(self: Any, sql: bytes, *arguments: Any, **values: Any) -> Any:
        if bytes(sql).endswith(b"COMMIT"):
            trigger.commit()
        return await query(self, sql, *arguments, **values)

    asyncmy.connection.Connection.query = query_wrapped


def _trace_commits(writer: sqlite3.Connection, trigger: CrashTrigger) -> None:
    writer.set_trace_callback(lambda statement: trigger.commit() if statement == "COMMIT" else None)


class CrashingServer(ServerApplication):
    """The application with a possible crash before each reply; a path is known by its last part, that of a message by
    its verb."""

    def __init__(self, settings: Settings, trigger: CrashTrigger) -> None:
        super().__init__(settings, crashing_backends(trigger))
        self._trigger = trigger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_or_crash(event: Any) -> None:
            if event["type"] == "http.response.start":
                last = scope["path"].rpartition("/")[2]
                self._trigger.reach("reply", scope["method"] if last.isdigit() else last, "before")
            await send(event)

        await super().__call__(scope, receive, send_or_crash)


def serve(environment: Mapping[str, str], step: CrashPoint | None, log: str) -> None:
    """Serve in this process until told to stop, or until the step."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with Path(log).open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    trigger = CrashTrigger(step)
    crash_at_commits_on_postgresql(trigger)
    crash_at_commits_on_mysql(trigger)
    settings = Settings()
    uvicorn.run(CrashingServer(settings, trigger), port=settings.port, loop="uvloop", http="httptools", log_config=None)


class ForkedServers:
    """Makes servers on one port with one environment, one after the other."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self._fork_context = multiprocessing.get_context("forkserver")
        self._fork_context.set_forkserver_preload(
            [__name__, "app.store.sqlite.store", "app.store.postgresql.store", "app.store.mysql.store"]
        )
        self._log = str(directory / "log")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        frequent_passes = {"PEEKLOCK_SWEEP_INTERVAL_SECONDS": "0.2", "PEEKLOCK_SEAL_INTERVAL_SECONDS": "0.3"}
        self._environment = {"PEEKLOCK_PORT": str(port), **frequent_passes, **environment}
        self._process: BaseProcess | None = None

    def start(self, step: CrashPoint | None = None) -> None:
        """Start a server; return once it answers or has died at its step."""
        process = self._process = self._fork_context.Process(target=serve, args=(self._environment, step, self._log))
        process.start()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while process.is_alive() and not self._is_ready():
            if time.monotonic() > deadline:
                raise ServerFailed(self._log_tail())
            time.sleep(POLL_SECONDS)
        if process.exitcode not in (None, -signal.SIGKILL):
            raise ServerFailed(self._log_tail())

    async def restart_after_death(self) -> None:
        """Wait until the step kills the server, then start one that lives."""
        process = self._process
        assert process is not None
        await wait_until(lambda: not process.is_alive(), "the server dies at its step")
        assert process.exitcode == -signal.SIGKILL, self._log_tail()
        await asyncio.to_thread(self.start)

    def kill(self) -> None:
        """End the server, if one runs."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._process = None

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as reply:
                return reply.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def _log_tail(self) -> str:
        return Path(self._log).read_text(errors="replace")[-4000:]
