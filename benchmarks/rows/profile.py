"""The server's CPU by part, in the lifecycles that `lifecycle` and `batch` measure."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.load import WorkUnit, batch_lifecycle, drive, lifecycle
from benchmarks.sampler import SAMPLES_FILE
from benchmarks.systems import System, peeklock
from benchmarks.table import Row

LOADS: dict[str, tuple[WorkUnit, int, int]] = {
    "1 caller": (lifecycle, 1, 1500),
    "64 callers": (lifecycle, 64, 6000),
    "100 messages a call, 4 callers": (batch_lifecycle, 4, 400),
}
"""By measured load: the unit of work, the callers, and the number of units."""


def measure(bench: Bench) -> Iterator[Row]:
    """A server for each load, sampled once it is warm. Sampling costs, so only the shares count."""
    for conditions, (work_unit, callers, units) in LOADS.items():
        samples = _samples(bench, work_unit, callers, bench.units(units))
        everything = samples.total()
        shares = ", ".join(f"{part} {count * 100 / everything:.0f} %" for part, count in samples.most_common())
        yield Row("server's CPU by part", conditions, shares, f"{everything:,} samples", [])


def _samples(bench: Bench, work_unit: WorkUnit, callers: int, units: int) -> Counter[str]:
    file = bench.folder / "samples.json"
    command = (sys.executable, "-m", "benchmarks.sampler", "serve")
    more = {SAMPLES_FILE: str(file)}
    with peeklock(bench.folder, bench.postgres, bench.redis, command=command, more=more) as ours:
        asyncio.run(_drive(ours, work_unit, callers, units))
    return Counter(json.loads(file.read_text()))


async def _drive(ours: System, work_unit: WorkUnit, callers: int, units: int) -> None:
    await drive(ours.target, work_unit, callers, units // 5)
    os.kill(ours.pid, signal.SIGUSR1)
    await drive(ours.target, work_unit, callers, units)
