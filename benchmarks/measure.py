"""Measuring: two systems in turn, CPU per message of each, and the middle of the ratios."""

import asyncio
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.load import Target, WorkUnit, drive
from benchmarks.systems import System

SystemLoad = tuple[System, WorkUnit, int]
"""A system, what is done to it, and how often in each round."""


@dataclass
class Cost:
    """What a message has cost, round by round."""

    cpu_ms: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)
    by_process: dict[str, list[float]] = field(default_factory=dict)

    @property
    def median_cpu_ms(self) -> float:
        """CPU milliseconds a message, the median of the rounds."""
        return statistics.median(self.cpu_ms)

    @property
    def throughput(self) -> float:
        """Messages a second by the clock, the median of the rounds."""
        return statistics.median(self.per_second)

    def parts(self) -> str:
        """CPU milliseconds a message by process."""
        return ", ".join(f"{part} {statistics.median(values):.3f}" for part, values in self.by_process.items())


def measure_alternating(loads: Sequence[SystemLoad], callers: int, rounds: int) -> list[Cost]:
    """Load each system in turn, `rounds` times after one that is not counted."""
    costs = [Cost() for _ in loads]
    for number in range(rounds + 1):
        for cost, (system, work_unit, units) in zip(costs, loads, strict=True):
            _one_round(cost, system, work_unit, callers, units, counted=number > 0)
    return costs


def ratio(of: Cost, to: Cost) -> float:
    """The median of the ratios of rounds that ran side by side."""
    return statistics.median(one / other for one, other in zip(of.cpu_ms, to.cpu_ms, strict=True))


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the percentile: the value that `percent` of a hundred values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def _one_round(cost: Cost, system: System, work_unit: WorkUnit, callers: int, units: int, *, counted: bool) -> None:
    before, began = system.cpu(), time.monotonic()
    done = _drive(system.target, work_unit, callers, units)
    seconds = time.monotonic() - began
    after = system.cpu()
    if not counted:
        return
    spent = {part: (after[part] - before[part]) * 1000 / done for part in after}
    cost.cpu_ms.append(sum(spent.values()))
    cost.per_second.append(done / seconds)
    for part, value in spent.items():
        cost.by_process.setdefault(part, []).append(value)


def _drive(target: Target, work_unit: WorkUnit, callers: int, units: int) -> int:
    return asyncio.run(drive(target, work_unit, callers, units))
