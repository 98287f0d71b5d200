"""`peeklock-worker`: one process and several, health, reload, and a stop in order."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from peeklock_client import Worker
from peeklock_client.blocking import BlockingClient
from peeklock_client.command import main
from peeklock_client.command.health import metrics_of, serve_health
from peeklock_client.command.processes import STEADY_SECONDS, Process, ReloadMissing, Supervisor
from peeklock_client.worker.report import WorkerReport

from tests.bounds import bounded
from tests.peeklock_process import environment
from tests.servers import TIMEOUT_SECONDS, free_port

LIMIT_SECONDS = 3 * TIMEOUT_SECONDS
"""What processes may take that start or end one after the other, also after a lock of 30 s."""

RECEIVE_SECONDS, POLL_SECONDS = 20, 0.05
MAX_RECEIVES, MAX_POLLS = int(LIMIT_SECONDS / RECEIVE_SECONDS), int(LIMIT_SECONDS / POLL_SECONDS)
MODULE = """
import os
from peeklock_client import NewMessage, Worker
worker = Worker()

@worker.on("numbers")
def handle(number: int) -> NewMessage:
    return NewMessage([number * {factor}, os.getpid()], queue="results")
"""
ENDLESS = """
import threading
from peeklock_client import Worker
from peeklock_client.blocking import BlockingClient
worker = Worker()

@worker.on("numbers")
def handle(number: int) -> None:
    with BlockingClient() as client:
        client.queue("results").send("begun")
    threading.Event().wait()
"""
STUCK = """
import threading
from peeklock_client import Worker
from peeklock_client.blocking import BlockingClient
worker = Worker()

@worker.on("numbers")
def handle(number: int) -> None:
    with BlockingClient() as client:
        client.queue("results").send(number)
    threading.Event().wait()
"""
LOST = """
from peeklock_client import Client, Worker
worker = Worker(Client("http://127.0.0.1:{port}"))

@worker.on("numbers")
async def handle(number: int) -> None: ...
"""
NUMBERED = """
from peeklock_client import PeeklockError, Worker

class Numbered(Worker):
    async def start(self) -> None:
        raise PeeklockError(f"process {self.process}")

worker = Numbered()
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def client(server_url: str) -> Iterator[BlockingClient]:
    with BlockingClient(server_url) as client:
        for name in ("numbers", "results"):
            client.queue(name).create()
            client.queue(name).purge()
        yield client


@pytest.fixture
def start(server_url: str, tmp_path: Path) -> Iterator[Start]:
    """Run the command in `tmp_path`, with a worker that multiplies by ten."""
    (tmp_path / "shop.py").write_text(MODULE.format(factor=10))
    (tmp_path / "broken.py").write_text("worker = (")
    running: list[subprocess.Popen[str]] = []

    def start_one(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "peeklock_client", *arguments]
        running.append(
            subprocess.Popen(command, cwd=tmp_path, env=environment(url=server_url), stderr=subprocess.PIPE, text=True)
        )
        return running[-1]

    yield start_one
    for process in running:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.communicate()


def result_of(client: BlockingClient, number: int) -> list[int]:
    """Send a number, and return the product and the process that made it."""
    client.queue("numbers").send(number)
    return next_result(client)


def next_result(client: BlockingClient) -> Any:
    """Return the body of the next result, however long its worker takes to start."""
    for _ in bounded("no worker has sent a result", MAX_RECEIVES):
        for message in client.queue("results").receive_and_delete(wait_seconds=RECEIVE_SECONDS):
            return message.body
    return None


def write_module(path: Path, text: str) -> None:
    """Replace a module at once: a process that starts meanwhile reads the old one or the new one."""
    written = path.with_suffix(".new")
    written.write_text(text)
    written.replace(path)


def stop(process: subprocess.Popen[str]) -> str:
    """End the command in order, and return what it logged."""
    process.send_signal(signal.SIGTERM)
    _, logged = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, logged
    return logged


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_worker_runs_until_it_is_ended_and_reports(client: BlockingClient, start: Start) -> None:
    process = start("shop:worker")
    assert result_of(client, 17) == [170, process.pid]
    assert "stopped: 1 received, 1 completed" in stop(process)


def test_health_and_metrics_are_served(client: BlockingClient, start: Start) -> None:
    port = free_port()
    process = start("shop:worker", f"--port={port}")
    result_of(client, 1)
    assert [get(port, path) for path in ("/livez", "/readyz")] == [(200, "alive\n"), (200, "ready\n")]
    status, text = get(port, "/metrics")
    assert (status, 'peeklock_worker_messages_total{outcome="received"} 1' in text) == (200, True)
    assert get(port, "/other")[0] == 404
    stop(process)


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_worker_that_does_not_run_is_alive_and_not_ready() -> None:
    port = free_port()
    async with serve_health(Worker(), "127.0.0.1", port):
        alive, ready = [await ask(port, b"GET /%b HTTP/1.1\r\n\r\n" % path) for path in (b"livez", b"readyz")]
    assert (alive.split(b"\r\n")[0], ready.split(b"\r\n")[0]) == (
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 503 Service Unavailable",
    )
    assert ready.endswith(b"\r\nContent-Length: 10\r\nConnection: close\r\n\r\nnot ready\n")


@pytest.mark.parametrize("request_", [b"\r\n\r\n", b"x" * 100_000], ids=["empty", "long"])
async def test_what_is_no_request_gets_no_answer_and_stops_nothing(
    request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    async with serve_health(Worker(), "127.0.0.1", port):
        with suppress(ConnectionError):  # what is not read is reset
            assert await ask(port, request_) == b""
        assert (await ask(port, b"GET /livez HTTP/1.1\r\n\r\n")).endswith(b"alive\n")
    assert not caplog.records


def test_a_process_that_dies_is_started_again(client: BlockingClient, start: Start) -> None:
    process = start("shop:worker", "--processes=2", "--grace-seconds=7", "--host=127.0.0.2", "--log-level=warning")
    _, worker = result_of(client, 1)
    assert worker != process.pid
    for child in psutil.Process(process.pid).children():
        assert {"--grace-seconds=7.0", "--host=127.0.0.2", "--log-level=warning"} <= set(child.cmdline())
        os.kill(child.pid, signal.SIGKILL)
    assert result_of(client, 2)[0] == 20
    assert "a process died" in stop(process)
    assert not psutil.pid_exists(worker)


def test_processes_end_when_their_supervisor_is_killed(client: BlockingClient, start: Start) -> None:
    process = start("shop:worker", "--processes=2")
    result_of(client, 1)
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 2
    process.kill()
    process.wait()
    _, running = psutil.wait_procs(workers, LIMIT_SECONDS)
    assert not running


def test_a_handler_in_a_thread_does_not_hold_up_a_stop(client: BlockingClient, start: Start, tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    process = start("stuck:worker", "--grace-seconds=0")
    client.queue("numbers").send(1)
    assert next_result(client) == 1
    assert "handlers still run" in stop(process)


def test_a_signal_ends_a_start_that_reaches_no_server(start: Start, tmp_path: Path) -> None:
    (tmp_path / "lost.py").write_text(LOST.format(port=free_port()))
    process = start("lost:worker", "--log-level=debug")
    assert process.stderr is not None
    assert any("starting" in line for line in process.stderr)
    assert "stopped: 0 received" in stop(process)


def test_corrected_code_is_started_again(client: BlockingClient, start: Start, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("worker = (")
    process = start("shop:worker", "--reload")
    assert process.stderr is not None
    assert any("restarts in 4 s" in line for line in process.stderr)
    write_module(tmp_path / "shop.py", MODULE.format(factor=100))
    assert result_of(client, 1)[0] == 100
    assert "restarts in" not in stop(process)


def test_each_process_has_a_port_of_its_own_for_its_health() -> None:
    supervisor = Supervisor(["shop:worker"], 3, 8000, reload=False, grace_seconds=0)
    assert [process._command[-3:] for process in supervisor._processes] == [
        ["shop:worker", f"--process={number}", f"--port={port}"] for number, port in ((1, 8000), (2, 8001), (3, 8002))
    ]


def test_a_process_passes_its_number_on_to_its_worker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "numbered.py").write_text(NUMBERED)
    monkeypatch.syspath_prepend(tmp_path)
    assert main.main(["numbered:worker", "--process=2"]) == 1
    assert main.main(["numbered:worker"]) == 1
    assert capsys.readouterr().err.splitlines() == ["peeklock-worker: process 2", "peeklock-worker: process 1"]


def test_a_process_that_dies_again_and_again_stays_away_longer(capfd: pytest.CaptureFixture[str]) -> None:
    process, now, pauses = Process(["true"]), 0.0, list[float]()
    for seconds in (0, 1, 1, 1, 1, 1, 1, STEADY_SECONDS + 1):
        process.keep_running(now)
        assert process._running is not None
        process._running.wait(LIMIT_SECONDS)
        now += seconds
        process.keep_running(now)
        pauses.append(float(capfd.readouterr().err.split()[-2]))
        process.keep_running(now + pauses[-1] - 0.1)
        assert process._running is None
        now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 1]


def test_a_change_of_the_code_starts_the_worker_again(client: BlockingClient, start: Start, tmp_path: Path) -> None:
    process = start("shop:worker", "--reload")
    assert result_of(client, 1)[0] == 10
    for _ in bounded("the new code never ran"):
        write_module(tmp_path / "shop.py", MODULE.format(factor=100))
        if result_of(client, 1)[0] == 100:
            break
        time.sleep(POLL_SECONDS)
    stop(process)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("nowhere:worker", "nowhere:worker cannot be loaded"),
        ("shop:handle", "shop:handle is not a Worker"),
        ("shop:x", "cannot be loaded"),
        ("broken:worker", "broken:worker cannot be loaded"),
    ],
)
@pytest.mark.parametrize("processes", [1, 2])
def test_a_target_that_is_no_worker_is_refused(start: Start, target: str, sentence: str, processes: int) -> None:
    process = start(target, f"--processes={processes}")
    _, logged = process.communicate(timeout=LIMIT_SECONDS)
    assert (process.returncode, sentence in logged) == (2, True)


def test_after_a_change_of_the_code_a_process_that_died_starts_without_a_pause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    starts = tmp_path / "starts"
    process = Process([sys.executable, "-c", f"open({str(starts)!r}, 'a').write('x')"])
    for _ in bounded("the process does not die", MAX_POLLS):
        process.keep_running(time.monotonic())
        if "restarts in" in capsys.readouterr().err:
            break
        time.sleep(POLL_SECONDS)
    process.wait(time.monotonic() + LIMIT_SECONDS)
    process.keep_running(time.monotonic())
    process.wait(time.monotonic() + LIMIT_SECONDS)
    assert starts.read_text() == "xx"


def test_a_stop_does_not_wait_for_a_thread_longer_than_allowed(
    client: BlockingClient, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(ENDLESS)
    process = start("shop:worker", "--grace-seconds=0")
    client.queue("numbers").send(1)
    assert next_result(client) == "begun"
    assert "1 handed_back" in stop(process)


def test_reload_without_its_library_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(ReloadMissing, match=r"peeklock-client\[reload\]"):
        Supervisor(["shop:worker"], 1, None, reload=True, grace_seconds=0)


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out == f"peeklock-worker {importlib.metadata.version('peeklock-client')}\n"


def test_the_help_names_the_server_its_key_and_each_default() -> None:
    shown = " ".join(main.parser().format_help().split())
    assert all(name in shown for name in ("PEEKLOCK_URL", "http://localhost:8080", "PEEKLOCK_API_KEY"))
    assert all(f"(default: {value})" in shown for value in ("1", "30", "127.0.0.1", "info"))


def test_each_count_is_a_series() -> None:
    text = metrics_of(WorkerReport(received=3))
    assert text.count("peeklock_worker_messages_total{") == 10
    assert text.endswith("\n")
