"""Workers in processes of their own that are killed and stopped in the middle of their work: no message is lost."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from peeklock_client import Client, Queue

from tests.bounds import bounded
from tests.client.conftest import LONG_ON_EACH_STORE, new_patient_queue, until_empty
from tests.client.logging_worker import LOCK_SECONDS
from tests.peeklock_process import environment

MESSAGES = 3000
POLL_SECONDS, MAX_POLLS = 0.05, 1200
Start = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
async def any_queue(any_client: Client) -> Queue:
    """A new queue on each store in turn, which dead-letters nothing."""
    return await new_patient_queue(any_client)


@pytest.fixture
async def start(any_server_url: str, any_queue: Queue, tmp_path: Path) -> AsyncIterator[Start]:
    """Start a worker whose log is one of `tmp_path`."""
    workers: list[subprocess.Popen[bytes]] = []

    def start_one() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.client.logging_worker", any_server_url, any_queue.name]
        log = tmp_path / f"{len(workers)}.log"
        log.touch()
        workers.append(subprocess.Popen([*command, str(log)], env=environment(), stdout=subprocess.PIPE))
        return workers[-1]

    yield start_one
    for worker in workers:
        if worker.poll() is None:
            worker.send_signal(signal.SIGCONT)
            worker.kill()
        with worker:
            pass  # close its output, and wait for its end


def processed(directory: Path) -> list[int]:
    """Return what the workers have processed, in all their logs."""
    return [int(line) for log in directory.glob("*.log") for line in log.read_text().split()]


async def until_processed(directory: Path, count: int) -> None:
    for _ in bounded(f"fewer than {count} messages are processed", MAX_POLLS):
        if len(set(processed(directory))) >= count:
            return
        await asyncio.sleep(POLL_SECONDS)


def locks_lost(report: bytes) -> int:
    """Return how many messages lost their locks, by the report that a worker prints at its end."""
    [lost] = re.findall(rb"(\d+) lock_lost", report)
    return int(lost)


def working(directory: Path) -> int:
    """Return how many workers have processed a message."""
    return sum(log.stat().st_size > 0 for log in directory.glob("*.log"))


async def until_all_work(directory: Path, workers: int) -> None:
    for _ in bounded("a worker processes nothing", MAX_POLLS):
        if working(directory) >= workers:
            return
        await asyncio.sleep(POLL_SECONDS)


@LONG_ON_EACH_STORE
@pytest.mark.faults
@pytest.mark.behaviour("S2.23", "S2.25", "S0.24")
async def test_killed_and_stopped_workers_lose_nothing(
    any_client: Client, any_queue: Queue, start: Start, tmp_path: Path
) -> None:
    for first in range(0, MESSAGES, 1000):
        await any_queue.send_batch([*range(first, first + 1000)])
    killed, stopped, steady = start(), start(), start()
    await until_all_work(tmp_path, 3)
    killed.kill()
    os.kill(stopped.pid, signal.SIGSTOP)
    # Its locks have ended by the clock of the server when this message is due.
    clock = any_client.queue(f"{any_queue.name}.clock")
    await clock.send("due", delay_seconds=LOCK_SECONDS + 1)
    assert await clock.receive(wait_seconds=30)
    os.kill(stopped.pid, signal.SIGCONT)
    late = start()
    await until_processed(tmp_path, MESSAGES)
    await until_empty(any_queue)
    assert late.stdout is not None
    assert await asyncio.to_thread(late.stdout.readline) == b"started\n"
    for worker in (stopped, steady, late):
        worker.terminate()
    reports = [(await asyncio.to_thread(worker.communicate))[0] for worker in (stopped, steady, late)]
    assert [worker.returncode for worker in (stopped, steady, late)] == [0, 0, 0]
    seen = processed(tmp_path)
    assert set(seen) == {*range(MESSAGES)}
    # Only what a killed or stopped worker held is processed twice, and what lost its lock on a busy machine.
    assert len(seen) - MESSAGES <= 2 * 50 + sum(map(locks_lost, reports))
    counts = (await any_queue.status()).counts
    assert (counts.available, counts.locked, counts.dead_lettered) == (0, 0, 0)
