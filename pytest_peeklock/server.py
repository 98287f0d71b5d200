"""Runs a server in a process of its own, and controls its data and its time through pipes.

A thread would share the process with the program under test. That program may have a package named `app` itself, may
replace the clock, block sockets, fork, or set signal handlers.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
"""The directory of this distribution's packages."""

START = """
import importlib.util, runpy, sys
spec = importlib.util.spec_from_file_location("app", sys.argv[1])
sys.modules["app"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["app"])
runpy.run_module("app.testing", run_name="__main__")
"""
"""Starts the server with the package `app` of this distribution, also where the search path has another one."""

UNWANTED_VARIABLES = ("PYTHONWARNINGS",)
"""Variables of the program under test that would change the server."""

STOP_SECONDS = 20.0
"""How long the server may take to stop. After that it is killed."""

PAGE = 1000
"""The largest number of messages in one receive."""

NOT_FOUND = 404
NO_QUEUE = "queue-not-found"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ServerFailed(Exception):
    """The server did not start, has ended, or refused a request. The text has the reason."""


class ServerProcess:
    """A server on a free port of loopback, with its data in memory. Use it with `with`."""

    url: str
    """The address of the server, such as `http://127.0.0.1:40123`. It stays the same."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # `stop` closes it
        self._turn = threading.Lock()
        self._calls = 0
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, str(ROOT / "app" / "__init__.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={name: value for name, value in os.environ.items() if name not in UNWANTED_VARIABLES},
            start_new_session=True,  # Ctrl-C in a terminal interrupts the tests, which then stop the server
        )

    def __enter__(self) -> Self:
        try:
            self.url = self._read()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def call(self, name: str, *values: float) -> int:
        """Send the server a command, and return its time afterwards, in microseconds since 1970. Raises `ServerFailed`.

        If a signal interrupts the call, as Ctrl-C or a time limit for tests does, the server still carries out the command.
        """
        with self._turn:
            self._calls += 1
            self._write([self._calls, name, *values])
            return self._read()

    def stop(self) -> None:
        """Stop the server, and release its pipes. Calling it again does nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.poll() is None:
            try:
                self._write(["stop"])
                self._process.wait(STOP_SECONDS)
            except (ServerFailed, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._log.close()

    def _write(self, command: list[str | float]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise self._failure() from error

    def _read(self) -> Any:
        """Return the answer to the last command. Those to earlier commands, whose calls were interrupted, are dropped."""
        assert self._process.stdout is not None
        answer: dict[str, Any] = {}
        while answer.get("call") != self._calls:
            line = self._process.stdout.readline()
            if not line:
                raise self._failure()
            answer = json.loads(line)
        if "error" in answer:
            raise ServerFailed(answer["error"])
        return answer["result"]

    def _failure(self) -> ServerFailed:
        if self._log.closed:
            return ServerFailed("The test server is stopped.")
        self._process.wait()
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        return ServerFailed(f"The test server ended with status {self._process.returncode}.\n{log}")


class Peeklock:
    """The server of one test. Its methods block. They also work in async tests: the server runs in a process of its own."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    @property
    def url(self) -> str:
        """The address of the server, such as `http://127.0.0.1:40123`."""
        return self._server.url

    def now(self) -> datetime:
        """Return the time of the server, in UTC."""
        return EPOCH + timedelta(microseconds=self._server.call("now"))

    def advance(self, seconds: float) -> None:
        """Move the server's clock forward, and return when all background work that became due is done.

        Scheduled messages become available, locks and messages expire, and receives whose wait is over are answered.
        Raises `ValueError` for a negative time.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"advance needs a finite number of seconds from 0, not {seconds}.")
        self._server.call("advance", seconds)

    def drain(
        self,
        queue: str,
        *,
        limit: int = 1000,
        wait_seconds: float = 0,
        source: Literal["queue", "dead_letter"] = "queue",
        api_key: str | None = None,
    ) -> list[dict[str, Any]]:
        """Remove up to `limit` available messages of a queue, and return them in the JSON form of a receive.

        `wait_seconds` is how long to wait for the first message. `source` chooses the messages of the queue or its dead
        letters. Returns an empty list for a queue that does not exist. Raises `ServerFailed` if the server refuses.
        """
        path = f"/v1/queues/{quote(queue, safe='')}/messages/receive"
        wanted = {"mode": "receive_and_delete", "source": source, "wait_seconds": wait_seconds}
        drained: list[dict[str, Any]] = []
        while len(drained) < limit:
            answer = self._post(path, wanted | {"max_messages": min(limit - len(drained), PAGE)}, api_key)
            if not answer["messages"]:
                break
            drained += answer["messages"]
            wanted["wait_seconds"] = 0
        return drained

    def _post(self, path: str, body: Mapping[str, Any], api_key: str | None) -> dict[str, Any]:
        # Imported here, because this module is loaded in every run of pytest.
        from http.client import HTTPConnection  # noqa: PLC0415

        headers = {"Content-Type": "application/json"}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        connection = HTTPConnection(self.url.removeprefix("http://"))
        try:
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status == NOT_FOUND and answer["code"] == NO_QUEUE:
            return {"messages": []}
        if "messages" not in answer:
            raise ServerFailed(answer["detail"])
        return answer
