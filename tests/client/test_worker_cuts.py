"""Workers that are cut off from the server, and servers that are cut off from Redis: each message has one result."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from peeklock_client import Client, NewMessage, Queue, RetryLimits, Worker
from peeklock_client.worker.report import WorkerReport

from tests.bounds import bounded
from tests.client.conftest import LONG_ON_EACH_STORE, new_patient_queue, new_queue, until_empty
from tests.databases import RunResources
from tests.faults.proxies import FaultyProxy
from tests.peeklock_process import PeeklockProcess

MESSAGES, MESSAGES_BEFORE_CUT = 600, 100
LOCK_SECONDS = 2
POLL_SECONDS, MAX_POLLS = 0.05, 2400
FEW_RETRIES = RetryLimits(attempts=2, timeout_seconds=5)


class CutWorker:
    """A worker whose handlers send the number of their message to another queue.

    They wait while `gate` is closed, as it is once there have been `MESSAGES_BEFORE_CUT`.
    """

    def __init__(self, client: Client, orders: Queue, results: Queue) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls = Counter[int]()
        self.waiting = 0
        self.cancelled = 0
        self.worker = Worker(client)

        @self.worker.on(orders.name, lock_seconds=LOCK_SECONDS, max_workers=10, fetch_batch_size=20)
        async def handle(number: int) -> NewMessage:
            self.calls[number] += 1
            if self.calls.total() == MESSAGES_BEFORE_CUT:
                self.gate.clear()
            self.waiting += 1
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            finally:
                self.waiting -= 1
            return NewMessage(number, queue=results.name)


async def until(condition: Callable[[], bool], what: str) -> None:
    for _ in bounded(what, MAX_POLLS):
        if condition():
            return
        await asyncio.sleep(POLL_SECONDS)


async def until_locks_have_ended(client: Client) -> None:
    """Return when a message is due that is delayed for longer than the locks last, by the clock of the server."""
    clock = await new_queue(client)
    await clock.send("due", delay_seconds=LOCK_SECONDS + 1)
    assert await clock.receive(wait_seconds=30)


async def results_of(queue: Queue) -> list[int]:
    """Receive and delete what the handlers have sent."""
    found: list[int] = []
    for _ in bounded("the queue still has messages", MAX_POLLS):
        found += [message.body for message in await queue.receive_and_delete(1000)]
        counts = (await queue.status()).counts
        if not counts.available and not counts.locked:
            break
    return found


@asynccontextmanager
async def working(client: Client, orders: Queue, results: Queue) -> AsyncIterator[CutWorker]:
    """Process the messages of a queue until it is empty at the end of the block, and check that each has one result."""
    await orders.send_batch([*range(MESSAGES)])
    cut = CutWorker(client, orders, results)
    await cut.worker.start()
    try:
        yield cut
        cut.gate.set()
        await until_empty(orders)
    finally:
        await cut.worker.stop()
    assert (await orders.status()).counts.dead_lettered == 0
    assert sorted(await results_of(results)) == [*range(MESSAGES)]


@LONG_ON_EACH_STORE
@pytest.mark.faults
@pytest.mark.behaviour("S2.9", "S2.25", "S0.24")
async def test_a_worker_that_is_cut_off_from_the_server_loses_nothing(any_server_url: str, any_client: Client) -> None:
    orders, results = [await new_patient_queue(any_client) for _ in range(2)]
    port = urlsplit(any_server_url).port
    assert port is not None
    proxy = FaultyProxy(port)
    async with (
        proxy.open(),
        Client(f"http://127.0.0.1:{proxy.port}", retries=FEW_RETRIES) as client,
        working(client, orders, results) as cut,
    ):
        await until(lambda: cut.waiting == 10, "no handler waits")
        proxy.pause()
        await until_locks_have_ended(any_client)
        await until(lambda: cut.cancelled >= 10, "no handler is cancelled")
        proxy.cut()
        proxy.is_closed = True
        cut.gate.set()
        await until_locks_have_ended(any_client)
        proxy.is_closed = False
        proxy.resume()
        proxy.drop_answer_to(lambda request: b"/commit" in request)
        proxy.cut()
    report = cut.worker.report
    assert report.lock_lost >= 10
    assert report.failed == 0
    assert sum(cut.calls.values()) - MESSAGES <= report.lock_lost + report.in_doubt


@pytest.fixture
def server_settings(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[dict[str, object]]:
    """A database, and an empty Redis database to which a proxy leads."""
    resources: RunResources = request.getfixturevalue("run_resources")
    with resources.empty_database(request.getfixturevalue("require_server")("redis")) as redis:
        yield {"database_url": postgres_url, "redis_url": redis}


@pytest.mark.faults
async def test_workers_lose_nothing_while_the_server_is_cut_off_from_redis(
    server_settings: dict[str, object], run_resources: RunResources, tmp_path: Path
) -> None:
    redis = urlsplit(str(server_settings["redis_url"]))
    assert redis.port is not None
    proxy = FaultyProxy(redis.port)
    directory = run_resources.with_tables(tmp_path)
    async with proxy.open():
        settings = server_settings | {
            "redis_url": f"redis://127.0.0.1:{proxy.port}{redis.path}",
            "auto_create_queues": 1,
        }
        server = await asyncio.to_thread(PeeklockProcess, directory, **settings)
        try:
            async with Client(server.url) as client:
                orders, results = [await new_patient_queue(client) for _ in range(2)]
                async with working(client, orders, results) as cut:
                    await until(lambda: cut.waiting == 10, "no handler waits")
                    for begin_fault, end_fault in ((proxy.pause, proxy.resume), (proxy.cut, proxy.cut)):
                        begin_fault()
                        await until_locks_have_ended(client)
                        end_fault()
                report: WorkerReport = cut.worker.report
                assert (report.failed, report.completed >= MESSAGES - 1) == (0, True)
        finally:
            await asyncio.to_thread(server.end)
