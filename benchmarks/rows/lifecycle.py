"""Send, receive, complete: what a message costs, against a request that does nothing and against the naive broker."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.load import bare_request, lifecycle
from benchmarks.measure import measure_alternating, ratio
from benchmarks.systems import System, reference
from benchmarks.table import Row, at_least, at_most


def measure(bench: Bench) -> Iterator[Row]:
    """With 64 callers whose calls share statements, with 16, and with one who shares nothing."""
    with bench.peeklock() as ours, reference("bare") as bare:
        with reference("naive", bench.postgres) as naive:
            yield _many_callers(bench, ours, bare, naive)
        yield _callers(bench, ours, bare, "16 callers", 16, bench.units(2000), 0.8)
        yield _callers(bench, ours, bare, "1 caller", 1, bench.units(500), 2.5)


def _many_callers(bench: Bench, ours: System, bare: System, naive: System) -> Row:
    units = bench.units(3000)
    drives = [(ours, lifecycle, units), (bare, bare_request, units * 3), (naive, lifecycle, units // 10)]
    own, floor, simple = measure_alternating(drives, 64, bench.rounds)
    requests, times = ratio(own, floor), ratio(simple, own)
    return Row(
        "lifecycle",
        "64 callers",
        f"{own.median_cpu_ms:.2f} ms ({own.parts()}), {own.throughput:.0f}/s; {requests:.1f} bare requests",
        f"bare request {floor.median_cpu_ms:.3f} ms; naive {simple.median_cpu_ms:.2f} ms, {times:.1f}× ours",
        [at_most(6.5, " bare requests", requests), at_least(15, "× for naive", times)],
    )


def _callers(bench: Bench, ours: System, bare: System, who: str, callers: int, units: int, limit_ms: float) -> Row:
    own, floor = measure_alternating([(ours, lifecycle, units), (bare, bare_request, units)], callers, bench.rounds)
    return Row(
        "lifecycle",
        who,
        f"{own.median_cpu_ms:.2f} ms ({own.parts()}), {own.throughput:.0f}/s",
        f"bare request {floor.median_cpu_ms:.3f} ms",
        [at_most(limit_ms, " ms", own.median_cpu_ms)],
    )
