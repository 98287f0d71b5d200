"""The embedded database with every commit on the disk, against a session per request."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.load import lifecycle
from benchmarks.measure import measure_alternating, ratio
from benchmarks.systems import peeklock, reference
from benchmarks.table import Row, at_least


def measure(bench: Bench) -> Iterator[Row]:
    """The saving of one writer that commits the work of many callers together."""
    folder = bench.folder / "sqlite"
    folder.mkdir()
    with peeklock(folder, None, None) as ours, reference("naive", sqlite=folder / "naive.db") as naive:
        units = bench.units(1500)
        own, simple = measure_alternating(
            [(ours, lifecycle, units), (naive, lifecycle, max(20, units // 15))], 64, bench.rounds
        )
        times = ratio(simple, own)
        yield Row(
            "lifecycle on SQLite",
            "synchronous FULL, 64 callers",
            f"{own.median_cpu_ms:.2f} ms, {own.throughput:.0f}/s",
            f"session per request over aiosqlite {simple.median_cpu_ms:.2f} ms, {times:.1f}× ours",
            [at_least(10, "× for naive", times)],
        )
