"""The cost of a message under other builds of Python, which `BENCH_PYTHONS` names, against the build that runs this.

Each needs the packages of requirements/run.txt."""

import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from operator import truediv

from benchmarks.bench import Bench
from benchmarks.load import lifecycle
from benchmarks.machine import python_build
from benchmarks.measure import measure_alternating
from benchmarks.systems import SERVE, System, peeklock
from benchmarks.table import Row

PYTHONS = "BENCH_PYTHONS"
"""The variable that lists their paths, separated by colons."""


def measure(bench: Bench) -> Iterator[Row]:
    """One server for each, measured in turn."""
    pythons = [sys.executable, *filter(None, os.environ.get(PYTHONS, "").split(":"))]
    with ExitStack() as running:
        systems = [running.enter_context(_server(bench, python, number)) for number, python in enumerate(pythons)]
        builds = [python_build(python) for python in pythons]
        for callers, units in ((64, bench.units(3000)), (1, bench.units(700))):
            yield _row(bench, systems, builds, callers, units)


def _server(bench: Bench, python: str, number: int) -> AbstractContextManager[System]:
    command = (python, *SERVE[1:])
    return peeklock(bench.folder, bench.postgres, bench.redis, database=f"python{number}", command=command)


def _row(bench: Bench, systems: Sequence[System], builds: Sequence[str], callers: int, units: int) -> Row:
    costs = measure_alternating([(system, lifecycle, units) for system in systems], callers, bench.rounds)
    own, *others = [cost.by_process["server"] for cost in costs]
    figures = [
        f"{build} {statistics.median(other):.2f} ms, {statistics.median(map(truediv, other, own)):.2f}×"
        for build, other in zip(builds[1:], others, strict=True)
    ]
    return Row(
        "server's CPU by interpreter",
        f"lifecycle, callers: {callers}",
        "; ".join(figures) or f"{PYTHONS} names no other interpreter",
        f"{builds[0]} {statistics.median(own):.2f} ms",
        [],
    )
