"""The metrics of a server of two processes; both processes answer the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from tests.main.http_requests import metric_value, send_request, wait_until
from tests.peeklock_process import PeeklockProcess

SENT = 'peeklock_request_seconds_count{operation="send_message",outcome="ok"}'
WAITING = "peeklock_waiting_receivers"


def test_requests_of_all_processes_are_summed(two_process_server: PeeklockProcess) -> None:
    for quiet in workers(two_process_server):
        with paused(quiet):  # so that the other one answers
            for _ in range(10):
                assert (
                    send_request(two_process_server, "POST", "/v1/queues/metered/messages", {"body": 1}).status_code
                    == 201
                )
    for _ in range(10):
        assert metric_value(two_process_server, SENT) == 20
    assert metric_value(two_process_server, 'peeklock_queue_messages{queue="metered",state="available"}') == 20
    assert metric_value(two_process_server, 'peeklock_queue_message_events_total{event="sent",queue="metered"}') == 20
    assert metric_value(two_process_server, 'peeklock_lock_store{state="ok"}') == 1


def test_a_dead_process_keeps_its_counts_but_not_its_waiting_receivers(two_process_server: PeeklockProcess) -> None:
    first, second = workers(two_process_server)
    with ThreadPoolExecutor() as threads:
        with paused(first):
            send_request(two_process_server, "POST", "/v1/queues/waited/messages", {"body": 1})
            send_request(two_process_server, "PUT", "/v1/queues/empty", {})
            waiting = threads.submit(
                send_request, two_process_server, "POST", "/v1/queues/empty/messages/receive", {"wait_seconds": 50}
            )
            wait_until(lambda: metric_value(two_process_server, WAITING) == 1, "a receiver waits")
        second.kill()
        with pytest.raises(httpx.TransportError):
            waiting.result()
    wait_until(lambda: metric_value(two_process_server, WAITING) == 0, "no receiver waits")
    wait_until(lambda: metric_value(two_process_server, SENT) == 1, "the count of the dead process is read")
    wait_until(lambda: len(workers(two_process_server)) == 2, "the dead process is replaced")


def workers(service: PeeklockProcess) -> list[psutil.Process]:
    """The living processes that answer requests."""
    return [process for process in psutil.Process(service.pid).children() if is_worker(process)]


def is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended, perhaps
        return "spawn_main" in " ".join(process.cmdline())
    return False


@contextlib.contextmanager
def paused(worker: psutil.Process) -> Iterator[None]:
    """Suspend a process; the parent may replace it if that takes long."""
    worker.suspend()
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.resume()
