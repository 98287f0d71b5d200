"""A thousand receivers on an empty queue: their cost while no message arrives, and the delay until one is woken."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from benchmarks.bench import Bench
from benchmarks.measure import percentile
from benchmarks.receivers import receive_waiting, until_waiting
from benchmarks.systems import System, call
from benchmarks.table import Row, at_most

RECEIVERS = 1000
WINDOWS = 3
WINDOW_SECONDS = 10.0
"""Not shorter in a quick run: the kernel counts CPU in hundredths of a second, here a tenth of a percent."""

SETTLE_SECONDS = 3.0
"""Three rounds of the background passes. To connect or disconnect all receivers costs as much as seconds of waiting."""

WAKES = 200
TIMEOUT_SECONDS = 10.0
"""Ten of the server's own polls. By then a receiver has its message even if its wake-up was lost."""


@dataclass
class CpuShares:
    """Shares of a core, window by window, each by process."""

    windows: list[dict[str, float]] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Percent of a core, the median of the windows."""
        return statistics.median(sum(window.values()) for window in self.windows) * 100

    def __str__(self) -> str:
        parts = self.windows[0]
        by_process = (
            f"{part} {statistics.median(window[part] for window in self.windows) * 100:.2f}" for part in parts
        )
        every = " / ".join(f"{sum(window.values()) * 100:.1f}" for window in self.windows)
        return f"{self.median:.1f} % of a core ({', '.join(by_process)}; windows {every})"


def measure(bench: Bench) -> Iterator[Row]:
    """The same server without and with waiting receivers, in turn; then they are woken one by one."""
    receivers = bench.units(RECEIVERS)
    with bench.peeklock() as ours:
        call(ours, "PUT", "/v1/queues/idle", {})
        idle, waiting, delays = asyncio.run(_measure(ours.with_queue("idle"), receivers, bench.units(WAKES)))
        yield Row(
            "receivers waiting",
            f"{receivers:,} on an empty queue, {WINDOWS} windows of {WINDOW_SECONDS:.0f} s",
            f"{waiting}; net of an idle server {waiting.median - idle.median:.1f} %",
            f"no receivers, in turn with them: {idle}",
            [at_most(2, " % of a core", waiting.median)],
        )
        yield Row(
            "receivers woken",
            f"{receivers:,} waiting, {len(delays)} sends one after the other",
            f"p50 {percentile(delays, 50) * 1000:.1f} ms, p95 {percentile(delays, 95) * 1000:.1f} ms",
            "itself",
            [at_most(10, " ms p50", percentile(delays, 50) * 1000)],
        )


async def _measure(ours: System, receivers: int, wakes: int) -> tuple[CpuShares, CpuShares, list[float]]:
    idle, waiting = CpuShares(), CpuShares()
    for _ in range(WINDOWS):
        idle.windows.append(await _window(ours))
        async with _waiting_receivers(ours, receivers):
            waiting.windows.append(await _window(ours))
    async with _waiting_receivers(ours, receivers) as receipts:
        return idle, waiting, await _wake(ours, receipts, wakes)


async def _window(ours: System) -> dict[str, float]:
    """Shares of a core by process in a steady state. No request reaches the server in the meantime."""
    await asyncio.sleep(SETTLE_SECONDS)
    began, before = time.monotonic(), ours.cpu()
    await asyncio.sleep(WINDOW_SECONDS)
    after, seconds = ours.cpu(), time.monotonic() - began
    return {part: (after[part] - before[part]) / seconds for part in after}


@asynccontextmanager
async def _waiting_receivers(ours: System, receivers: int) -> AsyncIterator["asyncio.Queue[float]"]:
    """Waiting receivers, until the block ends. Yields the times at which they get a message."""
    receipts: asyncio.Queue[float] = asyncio.Queue()
    target = ours.target

    async def wait() -> None:
        connection = await target.connect()
        try:
            moment, token = await receive_waiting(connection, target)
            if token is not None:
                receipts.put_nowait(moment)
        finally:
            connection.close()

    tasks = [asyncio.create_task(wait()) for _ in range(receivers)]
    await until_waiting(ours, receivers)
    try:
        yield receipts
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error


async def _wake(ours: System, receipts: "asyncio.Queue[float]", wakes: int) -> list[float]:
    target = ours.target
    sender = await target.connect()
    delays: list[float] = []
    for _ in range(wakes):
        sent = time.monotonic()
        status, answer = await sender.call("POST", target.path("messages"), b'{"body": 1}')
        if status != 201:
            raise RuntimeError(f"a send was answered {status}: {answer!r}")
        delays.append(await asyncio.wait_for(receipts.get(), TIMEOUT_SECONDS) - sent)
    sender.close()
    return delays
