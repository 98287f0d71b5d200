"""The delay until a waiting receiver gets a message that was sent to another server, against one sent to its own."""

import asyncio
import time
from collections.abc import Iterator, Sequence

from benchmarks.bench import Bench
from benchmarks.load import Connection
from benchmarks.measure import percentile
from benchmarks.receivers import receive_waiting, until_waiting
from benchmarks.systems import System, call, second_server
from benchmarks.table import Row, at_most

SAMPLES = 400


def measure(bench: Bench) -> Iterator[Row]:
    """Two servers that share only PostgreSQL and Redis. Sends go to one and to the other in turn."""
    samples = bench.units(SAMPLES)
    with bench.peeklock() as near, second_server(near) as far:
        call(near, "PUT", "/v1/queues/woken", {})
        within, across = asyncio.run(_measure_alternating(near.with_queue("woken"), far.with_queue("woken"), samples))
        yield Row(
            "woken across processes",
            f"one receiver waiting on another server than the one sent to, {samples} sends",
            _spread(across),
            f"the same server for both, {samples} sends: {_spread(within)}",
            [at_most(30, " ms p50", percentile(across, 50) * 1000)],
        )


async def _measure_alternating(near: System, far: System, samples: int) -> tuple[list[float], list[float]]:
    receiver, same_server, other_server = [await system.target.connect() for system in (near, near, far)]
    within: list[float] = []
    across: list[float] = []
    for _ in range(samples):
        within.append(await _wake(near, receiver, same_server))
        across.append(await _wake(near, receiver, other_server))
    for connection in (receiver, same_server, other_server):
        connection.close()
    return within, across


async def _wake(waiting_on: System, receiver: Connection, sender: Connection) -> float:
    """Seconds from just before the send until the receiver has its message, which is then completed."""
    target = waiting_on.target
    waiting_receiver = asyncio.create_task(receive_waiting(receiver, target))
    await until_waiting(waiting_on, 1)
    sent = time.monotonic()
    status, answer = await sender.call("POST", target.path("messages"), b'{"body": 1}')
    heard, token = await waiting_receiver
    if status != 201 or token is None:
        raise RuntimeError(f"a send was answered {status}, and its receiver heard of {token}: {answer!r}")
    await receiver.call("POST", target.path(f"locks/{token}/complete"))
    return heard - sent


def _spread(seconds: Sequence[float]) -> str:
    return ", ".join(f"p{percent} {percentile(seconds, percent) * 1000:.1f} ms" for percent in (50, 95, 99))
