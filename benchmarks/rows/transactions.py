"""Settlements and sends in one transaction, against the same in two batches."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.load import Handover
from benchmarks.measure import measure_alternating, ratio
from benchmarks.table import Row, at_most

CALLERS = 4


def measure(bench: Bench) -> Iterator[Row]:
    """The cost of all or nothing."""
    with bench.peeklock() as ours:
        units = bench.units(1500)
        loads = [(ours, Handover(together=True), units), (ours, Handover(together=False), units)]
        together, apart = measure_alternating(loads, CALLERS, bench.rounds)
        times = ratio(together, apart)
        yield Row(
            "transaction",
            f"{Handover.SIZE} completions and {Handover.SIZE} sends, {CALLERS} callers",
            f"{together.median_cpu_ms:.3f} ms a message ({together.parts()}); {times:.2f}× two batches",
            f"two batches {apart.median_cpu_ms:.3f} ms ({apart.parts()})",
            [at_most(1.5, "× two batches", times)],
        )
