"""The Python worker with an empty handler, against a loop with three requests for each message."""

import asyncio
import statistics
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from peeklock_client import Client, Worker

from benchmarks.bench import Bench
from benchmarks.fill_queue import fill
from benchmarks.load import Target
from benchmarks.systems import System, call
from benchmarks.table import Row, at_least, at_most

WORKER_MESSAGES, LOOP_MESSAGES = 20_000, 500
HELD_MESSAGES = 1000
MAX_WORKERS = 10


@dataclass(frozen=True, slots=True)
class Run:
    """What one run cost: messages per second, and CPU milliseconds a message of the server process and of this one."""

    per_second: float
    server_ms: float
    client_ms: float


def measure(bench: Bench) -> Iterator[Row]:
    """The rate of a worker against a loop with three requests for each message."""
    with bench.peeklock() as ours:
        for queue in ("loop", "worker", "held"):
            call(ours, "PUT", f"/v1/queues/{queue}", {})
        rounds = [_round(bench, ours) for _ in range(bench.rounds)]
        loops, workers = [one for one, _ in rounds], [one for _, one in rounds]
        times = statistics.median(worker.per_second / loop.per_second for loop, worker in rounds)
        server = statistics.median(run.server_ms for run in workers)
        yield Row(
            "worker",
            f"an empty handler, {MAX_WORKERS} at a time, one process; PostgreSQL",
            f"{_text(workers)}; {times:.1f}× the rate of the loop",
            f"receive, renew and complete with httpx, one caller: {_text(loops)}",
            [at_least(10, "×", times), at_most(0.2, " ms of server CPU", server)],
        )
        yield _stop(ours)


def _text(runs: list[Run]) -> str:
    per_second, server, client = (
        statistics.median(getattr(run, name) for run in runs) for name in ("per_second", "server_ms", "client_ms")
    )
    return (
        f"{per_second:,.0f} messages/s, CPU of the server {server:.3f} ms and of the client {client:.3f} ms a message"
    )


def _round(bench: Bench, ours: System) -> tuple[Run, Run]:
    loop, worker = bench.units(LOOP_MESSAGES), bench.units(WORKER_MESSAGES)
    fill(ours, "loop", loop)
    fill(ours, "worker", worker)
    return _measured(ours, loop, _loop(ours, loop)), _measured(ours, worker, _work(ours, worker))


def _measured(ours: System, messages: int, run: Coroutine[Any, Any, None]) -> Run:
    server, client, began = ours.cpu()["server"], time.process_time(), time.monotonic()
    asyncio.run(run)
    seconds = time.monotonic() - began
    spent = ours.cpu()["server"] - server, time.process_time() - client
    return Run(messages / seconds, *(1000 * part / messages for part in spent))


async def _loop(ours: System, messages: int) -> None:
    """Receive, renew and complete each message on its own."""
    url, headers = _address(ours)
    async with httpx.AsyncClient(base_url=f"{url}/v1/queues/loop", headers=headers) as http:
        for _ in range(messages):
            received = await http.post("/messages/receive", json={})
            token = received.json()["messages"][0]["lock_token"]
            for step in ("renew", "complete"):
                (await http.post(f"/locks/{token}/{step}", json={})).raise_for_status()


async def _work(ours: System, messages: int) -> None:
    async with client_of(ours) as client:
        worker, done, left = Worker(client), asyncio.Event(), messages

        @worker.on("worker", max_workers=MAX_WORKERS)
        async def handle(_: dict[str, str]) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        await worker.start()
        await done.wait()
        await worker.stop()


def _stop(ours: System) -> Row:
    """How long a stop takes that returns a thousand messages to their queue."""
    fill(ours, "held", HELD_MESSAGES)
    seconds, handed_back = asyncio.run(_hold(ours))
    return Row(
        "stop of a worker",
        f"with {HELD_MESSAGES:,} messages held",
        f"{seconds:.2f} s; {handed_back:,} returned",
        "none",
        [at_most(2, " s", seconds), at_least(HELD_MESSAGES, " returned", handed_back)],
    )


async def _hold(ours: System) -> tuple[float, int]:
    async with client_of(ours) as client:
        worker = Worker(client)

        @worker.on("held", max_workers=MAX_WORKERS, fetch_batch_size=HELD_MESSAGES)
        async def handle(_: dict[str, str]) -> None:
            await asyncio.sleep(3600)

        await worker.start()
        await asyncio.sleep(0)
        began = time.monotonic()
        report = await worker.stop(0)
        return time.monotonic() - began, report.handed_back


def client_of(ours: System) -> Client:
    """Return a client of a system."""
    url, headers = _address(ours)
    return Client(url, headers["authorization"].removeprefix("Bearer "))


def _address(ours: System) -> tuple[str, dict[str, str]]:
    target = ours.target
    assert isinstance(target, Target)
    return f"http://{target.host}:{target.port}", target.headers
