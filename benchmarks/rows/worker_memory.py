"""The memory of a worker that processes a million messages."""

import asyncio
from collections.abc import Iterator
from os import getpid

from peeklock_client import Worker

from benchmarks.bench import Bench
from benchmarks.fill_queue import fill
from benchmarks.machine import resident_mib
from benchmarks.rows.worker import client_of
from benchmarks.systems import System, call
from benchmarks.table import Row, at_most

MESSAGES = 1_000_000
SETTLED = 0.1
"""The memory is first measured after this share of the messages, when buffers have grown and code is loaded."""


def measure(bench: Bench) -> Iterator[Row]:
    """The memory of the worker's process, after a tenth of the messages and after all."""
    messages = bench.units(MESSAGES)
    with bench.peeklock() as ours:
        call(ours, "PUT", "/v1/queues/many", {})
        fill(ours, "many", messages)
        before, after = asyncio.run(_work(ours, messages))
    yield Row(
        "memory of the Python worker",
        f"{messages:,} messages, an empty handler",
        f"{after:.1f} MiB; {after / before:.2f}×",
        f"after {int(messages * SETTLED):,} messages {before:.1f} MiB",
        [at_most(1.1, "×", after / before)],
    )


async def _work(ours: System, messages: int) -> tuple[float, float]:
    async with client_of(ours) as client:
        worker, done, count, before = Worker(client), asyncio.Event(), 0, 0.0

        @worker.on("many", fetch_batch_size=200)
        async def handle(_: dict[str, str]) -> None:
            nonlocal count, before
            count += 1
            if count == int(messages * SETTLED):
                before = resident_mib(getpid())
            if count == messages:
                done.set()

        await worker.start()
        await done.wait()
        await worker.stop()
        return before, resident_mib(getpid())
