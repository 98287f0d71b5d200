"""A stopped server answers every waiting client and keeps every accepted message."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from tests.main.conftest import LONG_REDIS_TIMEOUT, Serve
from tests.main.http_requests import metric_value, send_request, wait_until
from tests.main.test_metrics import workers
from tests.servers import TIMEOUT_SECONDS

WAITING = "peeklock_waiting_receivers"
RECEIVERS = 6


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_a_stop_answers_waiting_receivers_at_once(
    serve: Serve, postgres_url: str, redis_url: str, processes: int
) -> None:
    """Only the stop can end these polls within the test's timeout, and its grace is long."""
    slow = {"long_poll_cap_seconds": 3600, "shutdown_grace_seconds": 600}
    service = serve(workers=processes, database_url=postgres_url, redis_url=redis_url, **slow)
    send_request(service, "PUT", "/v1/queues/quiet", {})
    with ThreadPoolExecutor(RECEIVERS) as threads:
        receive_request = ("POST", "/v1/queues/quiet/messages/receive", {"wait_seconds": 3600})
        waiting = [threads.submit(send_request, service, *receive_request) for _ in range(RECEIVERS)]
        wait_until(lambda: metric_value(service, WAITING) == RECEIVERS, "all receivers wait")
        service.terminate()
        answers = [task.result() for task in waiting]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, {"messages": []})] * RECEIVERS
    assert {answer.headers["connection"] for answer in answers} == {"close"}
    assert service.wait() == 0


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_a_connection_after_the_stop_is_refused_at_once(
    serve: Serve, postgres_url: str, redis_url: str, processes: int
) -> None:
    """An unfinished request delays the stop; meanwhile new connections are refused at once."""
    slow = {"shutdown_grace_seconds": 600, "database_url": postgres_url, "redis_url": redis_url}
    service = serve(workers=processes, **slow)
    send_request(service, "PUT", "/v1/queues/last", {})
    address = ("127.0.0.1", httpx.URL(service.url).port)
    with socket.create_connection(address, TIMEOUT_SECONDS) as slow_one:
        slow_one.sendall(HALF_REQUEST)
        assert slow_one.recv(100).startswith(b"HTTP/1.1 100 ")
        service.terminate()
        wait_until(lambda: is_refused(address), "the port is closed")
        slow_one.sendall(b"{}")
        assert slow_one.recv(100).startswith(b"HTTP/1.1 201 ")
    assert service.wait() == 0


HALF_REQUEST = (
    b"POST /v1/queues/last/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
)


def is_refused(address: tuple[str, int | None]) -> bool:
    try:
        socket.create_connection(address, TIMEOUT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    return False


def test_volatile_messages_are_stored_before_the_process_ends(serve: Serve, postgres_url: str, redis_url: str) -> None:
    settings = {"workers": 2, "database_url": postgres_url, "redis_url": redis_url, "auto_create_queues": 1}
    service = serve(**settings)
    send_request(service, "PUT", "/v1/queues/volatile", {})
    for number in range(30):
        answer = send_request(
            service, "POST", "/v1/queues/volatile/messages", {"body": number, "durability": "volatile"}
        )
        assert answer.status_code == 202
    service.terminate()
    assert service.wait() == 0
    later = serve(**settings)
    assert send_request(later, "GET", "/v1/queues/volatile").json()["counts"]["available"] == 30


def test_a_killed_parent_leaves_no_process_behind(serve: Serve, postgres_url: str, redis_url: str) -> None:
    service = serve(workers=2, database_url=postgres_url, redis_url=redis_url, **LONG_REDIS_TIMEOUT)
    children = psutil.Process(service.pid).children(recursive=True)
    assert len(workers(service)) == 2
    psutil.Process(service.pid).kill()
    service.wait()
    wait_until(lambda: service.log().count("the parent process has ended") == 2, "both processes miss their parent")
    for child in children:
        wait_until(lambda child=child: not has_run_on(child), f"{child} has ended")


def has_run_on(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_stop_exits_with_zero_and_logs_no_error(serve: Serve) -> None:
    service = serve()
    service.terminate()
    assert service.wait() == 0
    assert {line["level"] for line in service.lines()} == {"info"}


def test_the_shared_metrics_directory_is_removed(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str, redis_url: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    service = serve(workers=2, database_url=postgres_url, redis_url=redis_url, **LONG_REDIS_TIMEOUT)
    assert send_request(service, "GET", "/readyz").json() == {"status": "ready", "store": "ok", "lock_store": "ok"}
    (shared,) = temporary.glob("peeklock-metrics-*")
    assert list(shared.glob("*.numbers")) != []
    service.terminate()
    assert service.wait() == 0
    assert list(temporary.iterdir()) == []
