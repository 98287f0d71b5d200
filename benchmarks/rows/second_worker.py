"""The cost of a message with two worker processes instead of one."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.load import lifecycle
from benchmarks.measure import measure_alternating, ratio
from benchmarks.table import Row, at_most


def measure(bench: Bench) -> Iterator[Row]:
    """Two processes share fewer statements and notify each other."""
    units = bench.units(3000)
    with bench.peeklock() as one, bench.peeklock(workers=2, database="bench2") as two:
        single, double = measure_alternating([(one, lifecycle, units), (two, lifecycle, units)], 64, bench.rounds)
        times = ratio(double, single)
        yield Row(
            "lifecycle with a second worker",
            "64 callers",
            f"{double.median_cpu_ms:.2f} ms, {double.throughput:.0f}/s; {times:.2f}× one worker",
            f"one worker {single.median_cpu_ms:.2f} ms, {single.throughput:.0f}/s",
            [at_most(1.25, "×", times)],
        )
