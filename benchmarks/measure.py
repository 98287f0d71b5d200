"""Measuring: two systems in turn, CPU per message of each, and the median of the ratios."""

import asyncio
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.load import WorkUnit, drive
from benchmarks.systems import System

SystemLoad = tuple[System, WorkUnit, int]
"""A system, its load, and the number of units in each round."""


@dataclass
class Cost:
    """The cost of a message in each round."""

    cpu_ms: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)
    by_process: dict[str, list[float]] = field(default_factory=dict)

    @property
    def median_cpu_ms(self) -> float:
        """CPU milliseconds a message, the median of the rounds."""
        return statistics.median(self.cpu_ms)

    @property
    def throughput(self) -> float:
        """Messages per second by the clock, the median of the rounds."""
        return statistics.median(self.per_second)

    def parts(self) -> str:
        """CPU milliseconds a message by process."""
        return ", ".join(f"{part} {statistics.median(values):.3f}" for part, values in self.by_process.items())


def measure_alternating(loads: Sequence[SystemLoad], callers: int, rounds: int) -> list[Cost]:
    """Load each system in turn, `rounds` times after one that is not counted.

    The others are stopped meanwhile, so that background work, such as sealing, counts in the rounds of its own system.
    """
    return asyncio.run(_alternate(loads, callers, rounds))


def ratio(of: Cost, to: Cost) -> float:
    """The median of the ratios of rounds that ran side by side."""
    return statistics.median(one / other for one, other in zip(of.cpu_ms, to.cpu_ms, strict=True))


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the percentile: the value that `percent` of a hundred values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


async def _alternate(loads: Sequence[SystemLoad], callers: int, rounds: int) -> list[Cost]:
    costs = [Cost() for _ in loads]
    systems = [system for system, _, _ in loads]
    with _paused(systems):
        for number in range(rounds + 1):
            for cost, load in zip(costs, loads, strict=True):
                await _one_round(cost, load, callers, counted=number > 0)
    for system in systems:
        await system.target.close()
    return costs


@contextmanager
def _paused(systems: Sequence[System]) -> Iterator[None]:
    for system in systems:
        system.pause()
    try:
        yield
    finally:
        for system in systems:
            system.resume()


async def _one_round(cost: Cost, load: SystemLoad, callers: int, *, counted: bool) -> None:
    system, work_unit, units = load
    before, began = system.cpu(), time.monotonic()
    system.resume()
    done = await drive(system.target, work_unit, callers, units)
    system.pause()
    seconds = time.monotonic() - began
    after = system.cpu()
    if not counted:
        return
    spent = {part: (after[part] - before[part]) * 1000 / done for part in after}
    cost.cpu_ms.append(sum(spent.values()))
    cost.per_second.append(done / seconds)
    for part, value in spent.items():
        cost.by_process.setdefault(part, []).append(value)
