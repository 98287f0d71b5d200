"""Celery runs each task although its worker is killed, and retries with the visibility timeouts of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from tests.bounds import bounded
from tests.sqs_clients.signed_server import (
    HEADERS,
    PROGRAMS,
    PYTHON,
    REGION,
    SignedServer,
    SigningKey,
    create_key,
    kombu_url,
    run,
    running,
)

VISIBILITY_SECONDS = 2
WORKER = ("-m", "celery", "--app=shop", "worker", "--concurrency=1", "--loglevel=WARNING", "--without-heartbeat")


@dataclass(frozen=True, slots=True)
class Shop:
    """The application of Celery in a directory of its own, with a key and with transport options of kombu."""

    server: SignedServer
    key: SigningKey
    queue: str
    directory: Path
    options: Mapping[str, Any]

    def variables(self) -> dict[str, str]:
        """The environment of the application."""
        options = {"region": REGION, "is_secure": False, "wait_time_seconds": 1, "polling_interval": 0, **self.options}
        broker = kombu_url(self.server, self.key)
        found = {"PYTHONPATH": str(PROGRAMS), "BROKER": broker, "QUEUE": self.queue, "TRANSPORT_OPTIONS": repr(options)}
        return self.server.variables() | found

    def call(self, task: str, order: int) -> None:
        """Send a task."""
        run(self.variables(), PYTHON, "-c", f"from shop import {task}; {task}.delay({order}); print(1)")

    def worker(self) -> AbstractContextManager[IO[str]]:
        """Run a worker, which is killed in the end. Yield its output."""
        return running(self.variables(), PYTHON, *WORKER, directory=self.directory)


def create_queue(server: SignedServer, name: str, visibility_seconds: int) -> str:
    """Create a queue natively, and return its URL for SQS."""
    settings = {"lock_duration_seconds": visibility_seconds, "max_delivery_count": 100}
    httpx.put(f"{server.url}/v1/queues/{name}", json=settings, headers=HEADERS).raise_for_status()
    return f"{server.url}/000000000000/{name}"


def until(lines: IO[str], wanted: str) -> None:
    """Read the output of a program until it has printed this line. The test fails if the program ends without it."""
    read: list[str] = []
    for line in lines:
        read.append(line)
        if line == f"{wanted}\n":
            return
    raise AssertionError("".join(read))


def until_settled(server: SignedServer, queue: str) -> None:
    """Return when a queue has no messages."""
    with httpx.Client(headers=HEADERS) as http:
        for _ in bounded(f"queue {queue} still has messages"):
            counts = http.get(f"{server.url}/v1/queues/{queue}").raise_for_status().json()["counts"]
            if not any(counts.values()):
                return


@pytest.fixture(params=["created by kombu", "predefined"])
def shop(request: pytest.FixtureRequest, server: SignedServer, tmp_path: Path) -> Shop:
    """An application whose queue kombu creates, or whose queue and whose rights on it alone were made before."""
    if request.param == "created by kombu":
        return Shop(server, server.key, "celery", tmp_path, {"visibility_timeout": VISIBILITY_SECONDS})
    url = create_queue(server, "orders", VISIBILITY_SECONDS)
    key = create_key(server.url, ["send", "listen"], "orders")
    return Shop(server, key, "orders", tmp_path, {"predefined_queues": {"orders": {"url": url}}})


def test_a_task_of_a_killed_worker_runs_in_another_one(shop: Shop) -> None:
    shop.call("invoice", 17)
    with shop.worker() as lines:
        until(lines, "begun 17")
    with shop.worker() as lines:
        until(lines, "invoice for order 17")
        until_settled(shop.server, shop.queue)


def test_a_policy_of_kombu_shortens_the_visibility_timeout_of_a_task_that_has_failed(
    server: SignedServer, tmp_path: Path
) -> None:
    queue = {
        "url": create_queue(server, "flaky", 600),
        "backoff_policy": {1: 1, 2: 1},
        "backoff_tasks": ["shop.flaky"],
    }
    shop = Shop(server, server.key, "flaky", tmp_path, {"predefined_queues": {"flaky": queue}})
    shop.call("flaky", 18)
    with shop.worker() as lines:
        for attempt in (1, 2, 3):
            until(lines, f"attempt {attempt} of 18")
        until_settled(server, "flaky")
