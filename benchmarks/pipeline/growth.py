"""The cost of exporting a message out of ten times as many."""

import statistics
from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.pipeline.exporting import Archive, by_export, cost, sealed_archive, spark_session
from benchmarks.table import Row, at_most

GROWTH_FACTOR = 10
MIN_ROWS = 20_000
ROUNDS = 3


def measure(bench: Bench) -> Iterator[Row]:
    """Two archives are exported in turn, after a round that is not counted."""
    rows = max(MIN_ROWS, bench.units(100_000))
    with (
        sealed_archive(bench, "small", rows) as small,
        sealed_archive(bench, "large", rows * GROWTH_FACTOR) as large,
        spark_session() as spark,
    ):

        def micros(archive: Archive) -> float:
            return cost(bench, "export", archive, by_export(spark, archive)).spark * 1_000_000 / archive.rows

        rounds = [(micros(small), micros(large)) for _ in range(ROUNDS + 1)][1:]
    few, many = (statistics.median(costs) for costs in zip(*rounds, strict=True))
    times = statistics.median(more / less for less, more in rounds)
    yield Row(
        "growth of an export",
        f"{large.rows:,} messages of 1 KiB, PostgreSQL, median of {ROUNDS} rounds",
        f"{many:.1f} µs CPU a row; {times:.2f}×",
        f"itself with {small.rows:,}: {few:.1f} µs",
        [at_most(1.3, "×", times)],
    )
