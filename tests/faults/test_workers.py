"""Workers of peeklock-client that are killed, stopped and ended under load: by their own logs, every promise is kept."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.faults.database_access import remaining_messages
from tests.faults.fleet import LONG_REDIS_TIMEOUT, ROOT, Fleet
from tests.faults.history import FINAL
from tests.faults.polling import wait_for_count, wait_until
from tests.faults.retrying_client import RetryingClient
from tests.peeklock_process import environment

MESSAGES = 600
SENDERS = 10

StartWorker = Callable[[str], Awaitable[Process]]


@pytest.fixture(
    params=["postgresql", *(pytest.param(store, marks=pytest.mark.nightly) for store in ("sqlite", "mariadb"))]
)
def any_fleet(request: pytest.FixtureRequest) -> Fleet:
    """A fleet on each store in turn."""
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_fleet")
    database = request.getfixturevalue({"postgresql": "postgres_url", "mariadb": "mariadb_url"}[request.param])
    redis = {"PEEKLOCK_REDIS_URL": request.getfixturevalue("redis_url"), **LONG_REDIS_TIMEOUT}
    return request.getfixturevalue("start_fleet")(database, **redis)


@pytest.fixture
async def start_worker(any_fleet: Fleet) -> AsyncIterator[StartWorker]:
    """Start a worker of the queue of the fleet, with a log that the fleet reads."""
    workers: list[Process] = []

    async def start(url: str) -> Process:
        log = any_fleet.directory / f"worker-{len(workers)}.log"
        command = [sys.executable, "-m", "tests.faults.recording_worker", url, any_fleet.queue, str(log)]
        workers.append(await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment()))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.returncode is None:
            worker.send_signal(signal.SIGCONT)
            worker.kill()
        await worker.wait()


async def send_all(fleet: Fleet, url: str) -> None:
    async with fleet.client(url) as client, asyncio.TaskGroup() as tasks:
        for first in range(SENDERS):
            tasks.create_task(send_some(client, range(first, MESSAGES, SENDERS)))


async def send_some(client: RetryingClient, numbers: range) -> None:
    for number in numbers:
        await client.send(f"m{number}", str(number).encode())


def working(fleet: Fleet) -> int:
    """Return how many workers have sent a request. From then on they end as they are told."""
    return sum(log.stat().st_size > 0 for log in fleet.directory.glob("worker-*.log"))


def completed(fleet: Fleet) -> int:
    """Return how many messages are completed, whether or not the answer was heard."""
    return sum(one.state == FINAL["complete"] for one in remaining_messages(fleet.database, fleet.queue))


@pytest.mark.faults
@pytest.mark.behaviour("S2.23", "S2.25", "S0.23", "S0.24")
async def test_workers_that_are_killed_and_stopped_keep_every_promise(
    any_fleet: Fleet, start_worker: StartWorker
) -> None:
    server = await any_fleet.serve()
    await any_fleet.create_queue(server.url)
    sending = asyncio.create_task(send_all(any_fleet, server.url))
    killed, stopped, steady = [await start_worker(server.url) for _ in range(3)]
    await wait_until(lambda: working(any_fleet) == 3, "every worker works")
    await wait_for_count(lambda: completed(any_fleet), MESSAGES // 6, "messages are completed")
    killed.kill()
    stopped.send_signal(signal.SIGSTOP)
    await sending
    # What the two held comes back when its locks end. The one that was stopped still holds it, as far as it knows.
    await wait_for_count(lambda: completed(any_fleet), MESSAGES, "messages are completed")
    stopped.send_signal(signal.SIGCONT)
    for worker in (stopped, steady):
        worker.terminate()
    assert [await worker.wait() for worker in (stopped, steady)] == [0, 0]
    assert any_fleet.broken_promises() == []
