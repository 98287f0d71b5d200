"""A hundred receivers with filters over a full queue in which nothing matches: their effect on other requests."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from benchmarks.bench import Bench
from benchmarks.fill_queue import fill
from benchmarks.load import SEND_BODY, Connection
from benchmarks.measure import percentile
from benchmarks.receivers import until_waiting
from benchmarks.systems import System, call
from benchmarks.table import Row, at_most

RECEIVERS = 100
MESSAGES = 100_000
PROBES = 400
ROUNDS = 3
PROBE_INTERVAL_SECONDS = 0.01
"""The pause between two probes, so that they arrive in all phases of a scan."""

SETTLE_SECONDS = 1.0


@dataclass
class Latencies:
    """The seconds until each response, by kind of request."""

    alive: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return f"/livez {_spread(self.alive)}; send {_spread(self.sent)}"


def measure(bench: Bench) -> Iterator[Row]:
    """The same server without receivers and with all of them, in turn."""
    receivers, messages = bench.units(RECEIVERS), bench.units(MESSAGES)
    with bench.peeklock() as ours:
        for name in ("full", "other"):
            call(ours, "PUT", f"/v1/queues/{name}", {})
        fill(ours, "full", messages)
        idle, filtering = asyncio.run(_measure_alternating(ours, receivers, bench.units(PROBES)))
        yield Row(
            "beside filters",
            f"{receivers} receivers, each with a filter of its own that matches none of {messages:,} messages; "
            f"{len(idle.alive)} probes of each kind, one at a time",
            str(filtering),
            f"no receivers, in turn with them: {idle}",
            [
                at_most(5, "× /livez p50", _ratio(filtering.alive, idle.alive, 50)),
                at_most(5, "× send p50", _ratio(filtering.sent, idle.sent, 50)),
                at_most(10, "× send p95", _ratio(filtering.sent, idle.sent, 95)),
            ],
        )


async def _measure_alternating(ours: System, receivers: int, probes: int) -> tuple[Latencies, Latencies]:
    idle, filtering = Latencies(), Latencies()
    for _ in range(ROUNDS):
        await _probe(ours, idle, probes // ROUNDS)
        async with _receivers(ours, receivers):
            await _probe(ours, filtering, probes // ROUNDS)
        await asyncio.sleep(SETTLE_SECONDS)
    return idle, filtering


async def _probe(ours: System, latencies: Latencies, probes: int) -> None:
    target = ours.with_queue("other").target
    connection = await target.connect()
    try:
        for _ in range(probes):
            latencies.alive.append(await _timed(connection, "GET", "/livez", b"", 200))
            latencies.sent.append(await _timed(connection, "POST", target.path("messages"), SEND_BODY, 201))
            await asyncio.sleep(PROBE_INTERVAL_SECONDS)
    finally:
        connection.close()


async def _timed(connection: Connection, method: str, path: str, body: bytes, wanted: int) -> float:
    began = time.monotonic()
    status, answer = await connection.call(method, path, body)
    if status != wanted:
        raise RuntimeError(f"{method} {path} was answered {status}: {answer!r}")
    return time.monotonic() - began


@asynccontextmanager
async def _receivers(ours: System, receivers: int) -> AsyncIterator[None]:
    """Receivers that scan and wait until the block ends."""
    target = ours.with_queue("full").target

    async def receive(number: int) -> None:
        connection = await target.connect()
        wanted = json.dumps({"wait_seconds": 50, "filter": f"message.subject == 'wanted-{number}'"}).encode()
        try:
            while True:
                status, answer = await connection.call("POST", target.path("messages/receive"), wanted)
                if status != 200:
                    raise RuntimeError(f"a receive was answered {status}: {answer!r}")
        finally:
            connection.close()

    tasks = [asyncio.create_task(receive(number)) for number in range(receivers)]
    await until_waiting(ours, receivers)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error


def _ratio(measured: list[float], reference: list[float], percent: int) -> float:
    return percentile(measured, percent) / percentile(reference, percent)


def _spread(seconds: list[float]) -> str:
    return ", ".join(f"p{percent} {percentile(seconds, percent) * 1000:.1f} ms" for percent in (50, 95, 99))
