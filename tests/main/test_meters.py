"""The meters of a server of two processes, whichever of them is asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from tests.main.asking import ask, meter, until
from tests.service import Service

SENT = 'peeklock_request_seconds_count{operation="send_message",outcome="ok"}'
WAITING = "peeklock_waiting_receivers"


def test_requests_are_added_up_over_the_processes(pair: Service) -> None:
    for quiet in workers(pair):
        with paused(quiet):  # so that the other one answers
            for _ in range(10):
                assert ask(pair, "POST", "/v1/queues/metered/messages", {"body": 1}).status_code == 201
    for _ in range(10):
        assert meter(pair, SENT) == 20
    assert meter(pair, 'peeklock_queue_messages{queue="metered",state="available"}') == 20
    assert meter(pair, 'peeklock_lock_store{state="ok"}') == 1


def test_a_dead_process_waits_for_nothing_and_its_work_stays_counted(pair: Service) -> None:
    first, second = workers(pair)
    with ThreadPoolExecutor() as threads:
        with paused(first):
            ask(pair, "POST", "/v1/queues/waited/messages", {"body": 1})
            ask(pair, "PUT", "/v1/queues/empty", {})
            waiting = threads.submit(ask, pair, "POST", "/v1/queues/empty/messages/receive", {"wait_seconds": 50})
            until(lambda: meter(pair, WAITING) == 1, "a receiver waits")
        second.kill()
        with pytest.raises(httpx.TransportError):
            waiting.result()
    until(lambda: meter(pair, WAITING) == 0, "nobody waits any more")
    assert meter(pair, SENT) == 1
    until(lambda: len(workers(pair)) == 2, "the dead process is replaced")


def workers(service: Service) -> list[psutil.Process]:
    """The processes that answer requests."""
    return [one for one in psutil.Process(service.pid).children() if "spawn_main" in " ".join(one.cmdline())]


@contextlib.contextmanager
def paused(worker: psutil.Process) -> Iterator[None]:
    """Keep a process from answering; the parent may replace it if that takes long."""
    worker.suspend()
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.resume()
