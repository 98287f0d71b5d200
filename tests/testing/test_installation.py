"""The plugin in the programs of others: light while unused, apart from their process, and gone at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.conftest import RunTests

USE = """
import os
from pathlib import Path

import httpx

def test_user(peeklock):
    assert httpx.get(f"{peeklock.url}/v1/queues").json()["items"] == []
"""


def test_a_run_that_uses_no_fixture_loads_nothing_of_the_server(run_tests: RunTests) -> None:
    run = run_tests(
        """
import sys

def test_user(pytestconfig):
    assert pytestconfig.pluginmanager.has_plugin("peeklock")
    assert not {"app", "fastapi", "http.client", "httpx", "uvicorn"} & sys.modules.keys()
""",
        "-p",
        "peeklock",
        "-W",
        "ignore::pytest.PytestConfigWarning",  # here no plugin reads the option for pytest-asyncio
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )
    assert run.passed, run.output


def test_the_program_under_test_may_have_a_package_of_the_same_name(run_tests: RunTests) -> None:
    run = run_tests(
        USE
        + """
    import app
    assert app.NAME == "the shop"
""",
        files={"app/__init__.py": 'NAME = "the shop"\n', "app/main.py": "raise RuntimeError\n"},
    )
    assert run.passed, run.output


def test_the_environment_does_not_change_the_server(run_tests: RunTests) -> None:
    run = run_tests(
        USE + '    assert os.environ["PEEKLOCK_URL"] == peeklock.url and "PEEKLOCK_API_KEY" not in os.environ\n',
        PEEKLOCK_DATABASE_URL="postgresql://user@127.0.0.1:9/production",
        PEEKLOCK_REDIS_URL="redis://127.0.0.1:9",
        PEEKLOCK_HOST="0.0.0.0",
        PEEKLOCK_PORT="9",
        PEEKLOCK_URL="http://127.0.0.1:9",
        PEEKLOCK_API_KEY="production",
        PROMETHEUS_MULTIPROC_DIR="/nowhere",
        PYTHONWARNINGS="error",
    )
    assert run.passed, run.output


def test_the_server_ends_with_the_run_and_leaves_no_file(run_tests: RunTests, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    run = run_tests(
        USE + '    Path("pid").write_text(str(peeklock._server._process.pid))\n', TMPDIR=str(tmp_path / "tmp")
    )
    assert run.passed, run.output
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".db") == []
    assert [path for path in (tmp_path / "tmp").rglob("*") if "peeklock" in path.name] == []


def test_a_server_ends_when_its_tests_are_killed(run_tests: RunTests, tmp_path: Path) -> None:
    run = run_tests(
        USE
        + """
    import signal, subprocess
    Path("pid").write_text(str(peeklock._server._process.pid))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    assert not run.passed
    server = Path("/proc", (tmp_path / "pid").read_text(), "stat")
    for _ in range(100_000):
        # A process without a parent that waits for it may stay as a zombie.
        if not server.exists() or server.read_text().rpartition(")")[2].split()[0] == "Z":
            return
    raise AssertionError("the server still runs")


def test_a_server_that_ends_fails_the_test_with_a_reason(run_tests: RunTests) -> None:
    run = run_tests(
        """
import pytest
from pytest_peeklock import ServerFailed, ServerProcess

def test_user():
    with ServerProcess() as server:
        server._process.kill()
        with pytest.raises(ServerFailed, match="ended with status -9"):
            server.call("now")
"""
    )
    assert run.passed, run.output


INTERRUPTED = """
import os, signal, sys, threading, pytest
from pytest_peeklock import ServerProcess

class Interrupted(Exception):
    pass

def interrupt(number, frame):
    raise Interrupted

def interrupt_the_read_of(thread):
    while sys._current_frames()[thread].f_code.co_name != "_read":
        pass
    signal.pthread_kill(thread, signal.SIGUSR1)

def test_user():
    signal.signal(signal.SIGUSR1, interrupt)
    with ServerProcess() as server:
        before = server.call("now")
        os.kill(server._process.pid, signal.SIGSTOP)
        threading.Thread(target=interrupt_the_read_of, args=[threading.get_ident()], daemon=True).start()
        with pytest.raises(Interrupted):
            server.call("unknown")
        os.kill(server._process.pid, signal.SIGCONT)
        assert server.call("advance", 3600) - before >= 3600 * 1_000_000
        assert server.call("now") - before >= 3600 * 1_000_000
"""


@pytest.mark.nightly
def test_a_call_that_is_interrupted_leaves_its_answer_to_no_other(run_tests: RunTests) -> None:
    run = run_tests(INTERRUPTED)
    assert run.passed, run.output


@pytest.mark.nightly
def test_each_process_of_a_distributed_run_has_a_server_of_its_own(run_tests: RunTests, tmp_path: Path) -> None:
    run = run_tests(
        USE.replace("def test_user(peeklock)", '@__import__("pytest").mark.parametrize("n", range(4))\ndef test_user(peeklock, n)')
        + '    Path(os.environ["PYTEST_XDIST_WORKER"] + ".url").write_text(peeklock.url)\n',
        "-n", "2", "--dist", "each",
    )  # fmt: skip
    assert run.passed, run.output
    assert len({path.read_text() for path in tmp_path.glob("*.url")}) == 2


def test_async_tests_use_the_same_fixture(run_tests: RunTests) -> None:
    run = run_tests(
        """
import anyio
import pytest
from peeklock_client import Client, Worker
from peeklock_client.blocking import BlockingClient

@pytest.mark.asyncio
async def test_asyncio(peeklock):
    async with Client() as client:
        await client.queue("orders").send({"order": 17}, delay_seconds=60)
        peeklock.advance(60)
        (received,) = await client.queue("orders").receive(1)
        async with received:
            assert received.message.body == {"order": 17}

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_anyio(peeklock, anyio_backend):
    worker = Worker()
    handled = anyio.Event()

    @worker.on("orders")
    async def invoice(number: int) -> None:
        async with Client() as client:
            await client.queue("invoices").send(number)
        handled.set()

    async with Client() as client:
        await client.queue("orders").send(17)
    async with worker.lifespan():
        with anyio.fail_after(60):
            await handled.wait()
    assert [message["body"] for message in peeklock.drain("invoices")] == [17]

def test_blocking(peeklock):
    with BlockingClient() as client:
        client.queue("letters").send("hello")
    assert [message["body"] for message in peeklock.drain("letters")] == ["hello"]
"""
    )
    assert run.passed, run.output
