"""Pushes whose worker and whose target are killed in the middle of their work: no message is lost, none is completed unheard."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from peeklock_client import Client, Queue
from peeklock_client.generated import requests

from tests.bounds import bounded
from tests.client.conftest import LONG_ON_EACH_STORE, new_queue, until_empty
from tests.client.push_network import answered
from tests.client.push_processes import PushProcesses
from tests.client.push_receiver import REJECTED
from tests.servers import TIMEOUT_SECONDS

MESSAGES = 1500
LOCK_SECONDS = 4
POLL_SECONDS, MAX_POLLS = 0.05, 2400


@pytest.fixture
async def any_queue(any_client: Client) -> Queue:
    """A new queue on each store in turn, whose locks are short, and which dead-letters nothing of its own accord."""
    settings = requests.QueueSettingsBody(max_delivery_count=1000, lock_duration_seconds=LOCK_SECONDS)
    return await new_queue(any_client, settings)


@pytest.fixture
def processes(any_server_url: str, tmp_path: Path) -> Iterator[PushProcesses]:
    processes = PushProcesses(any_server_url, tmp_path)
    yield processes
    processes.end()


async def until_received(processes: PushProcesses, count: int) -> None:
    """Return once the target has answered 200 for this number of messages."""
    for _ in bounded(f"the target has only {len(processes.received())} messages", MAX_POLLS):
        if len(processes.received()) >= count:
            return
        await asyncio.sleep(POLL_SECONDS)


@LONG_ON_EACH_STORE
@pytest.mark.faults
@pytest.mark.parametrize("batch", [None, 20], ids=["single", "batches"])
async def test_killed_workers_and_targets_lose_nothing_and_complete_only_what_was_accepted(
    any_queue: Queue, processes: PushProcesses, batch: int | None
) -> None:
    for first in range(0, MESSAGES, 500):
        await any_queue.send_batch([*range(first, first + 500)])
    options = ["--concurrency=5", *([] if batch is None else [f"--batch={batch}"])]
    receiver = processes.start_receiver()
    killed, steady = (processes.push(any_queue.name, *options) for _ in range(2))
    await until_received(processes, MESSAGES // 10)
    killed.kill()
    await until_received(processes, MESSAGES // 5)
    receiver.kill()
    await asyncio.to_thread(receiver.wait)
    late = processes.push(any_queue.name, *options)
    processes.start_receiver()
    await until_empty(any_queue)
    logged = [await asyncio.to_thread(processes.stop, worker) for worker in (steady, late)]
    assert all("stopped:" in text for text in logged)

    rejected = set() if batch else {number for number in range(MESSAGES) if number % 100 == REJECTED}
    received = processes.received()
    assert "invalid" not in received
    assert {*map(int, received)} == {*range(MESSAGES)} - rejected
    status = await any_queue.status()
    assert (status.counts.available, status.counts.locked, status.counts.dead_lettered) == (0, 0, len(rejected))
    dead = [message async for message in any_queue.browse(states=["dead_lettered"])]
    assert {message.body for message in dead} == rejected
    assert {message.dead_letter_reason for message in dead} <= {"no such order"}


@asynccontextmanager
async def requests_at(port: int) -> AsyncIterator[asyncio.Queue[asyncio.StreamWriter]]:
    """Listen as a target. Each request puts the writer for its answer into the queue. All connections close at the end."""
    arrived = asyncio.Queue[asyncio.StreamWriter]()
    async with AsyncExitStack() as connections:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.push_async_callback(close, writer)
            await reader.readuntil(b"\r\n\r\n")
            arrived.put_nowait(writer)

        async with await asyncio.start_server(serve, "127.0.0.1", port), asyncio.timeout(6 * TIMEOUT_SECONDS):
            yield arrived


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@LONG_ON_EACH_STORE
@pytest.mark.faults
async def test_an_answer_that_a_worker_reads_after_the_end_of_its_lock_completes_nothing(
    any_queue: Queue, processes: PushProcesses
) -> None:
    await any_queue.send(17)
    async with requests_at(processes.port) as arrived:
        suspended = processes.push(any_queue.name)
        first = await arrived.get()
        suspended.send_signal(signal.SIGSTOP)
        first.write(answered(200))
        steady = processes.push(any_queue.name)
        second = await arrived.get()  # the lock of the first delivery has ended
        suspended.send_signal(signal.SIGCONT)
        logged = await asyncio.to_thread(processes.stop, suspended)
        counts = (await any_queue.status()).counts
        assert (" 0 completed, " in logged, counts.available + counts.locked) == (True, 1)
        second.write(answered(200))
        await until_empty(any_queue)
        logged = await asyncio.to_thread(processes.stop, steady)
    assert " 1 completed, " in logged
