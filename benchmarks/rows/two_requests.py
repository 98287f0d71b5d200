"""The loop of a worker that settles with its next receive, against the same in three requests."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.load import TwoRequests, lifecycle
from benchmarks.measure import measure_alternating, ratio
from benchmarks.table import Row, at_most


def measure(bench: Bench) -> Iterator[Row]:
    """The cost of the third request."""
    with bench.peeklock() as ours:
        units = bench.units(2500)
        two, three = measure_alternating([(ours, TwoRequests(), units), (ours, lifecycle, units)], 64, bench.rounds)
        share = ratio(two, three)
        yield Row(
            "lifecycle in two requests",
            "64 callers",
            f"{two.median_cpu_ms:.2f} ms; {share:.2f}× three requests",
            f"three requests {three.median_cpu_ms:.2f} ms",
            [at_most(0.75, "×", share)],
        )
