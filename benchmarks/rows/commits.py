"""A commit with a send and a state, against a complete, and against a send and a complete."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.commits import RESULTS, Commit, Complete, SendAndComplete
from benchmarks.measure import measure_alternating, ratio
from benchmarks.systems import call
from benchmarks.table import Row, at_most


def measure(bench: Bench) -> Iterator[Row]:
    """The cost of a commit in one call, with many callers and with one."""
    with bench.peeklock() as ours:
        call(ours, "PUT", f"/v1/queues/{RESULTS}", {})
        for callers, units in ((64, 3000), (1, 500)):
            loads = [(ours, load(), bench.units(units)) for load in (Commit, Complete, SendAndComplete)]
            commit, complete, both = measure_alternating(loads, callers, bench.rounds)
            times = ratio(commit, complete)
            yield Row(
                "commit with a state",
                f"one send and one version; {callers} callers"
                if callers > 1
                else "one send and one version; one caller",
                f"{commit.median_cpu_ms:.3f} ms ({commit.parts()}); {times:.2f}× a complete, "
                f"{ratio(commit, both):.2f}× a send and a complete",
                f"a complete {complete.median_cpu_ms:.3f} ms, with a send {both.median_cpu_ms:.3f} ms",
                [at_most(2, "× a complete", times)],
            )
