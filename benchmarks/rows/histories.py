"""A queue with a history: what it costs to record each transition."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.load import lifecycle
from benchmarks.measure import Cost, measure_alternating, ratio
from benchmarks.systems import call
from benchmarks.table import Row, at_most


def measure(bench: Bench) -> Iterator[Row]:
    """A queue with a history against one without, with 64 callers and with 4 that share few statements."""
    with bench.peeklock() as plain:
        call(plain, "PUT", "/v1/queues/recorded", {"history": True})
        recorded = plain.with_queue("recorded")
        for callers, units in ((64, 3000), (4, 1500)):
            loads = [(recorded, lifecycle, bench.units(units)), (plain, lifecycle, bench.units(units))]
            yield _against_plain(callers, *measure_alternating(loads, callers, bench.rounds))


def _against_plain(callers: int, recorded: Cost, plain: Cost) -> Row:
    times = ratio(recorded, plain)
    return Row(
        "lifecycle with a history",
        f"{callers} callers, three events",
        f"{recorded.median_cpu_ms:.2f} ms ({recorded.parts()}), {recorded.throughput:.0f}/s; {times:.2f}× without",
        f"without a history {plain.median_cpu_ms:.2f} ms",
        [at_most(1.5, "× without", times)],
    )
