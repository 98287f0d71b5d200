"""How many messages per second of CPU exports, against Spark's own JDBC reader."""

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.bench import Bench
from benchmarks.pipeline.exporting import (
    CORES,
    QUEUES,
    CpuSeconds,
    by_export,
    by_jdbc,
    cost,
    sealed_archive,
    spark_session,
)
from benchmarks.table import Row, at_least

MIN_ROWS = 50_000
"""With fewer messages, the fixed cost of a Spark job would dominate."""


def measure(bench: Bench) -> Iterator[Row]:
    """Both copy one archive in turn, after a round that is not counted."""
    rows = max(MIN_ROWS, bench.units(200_000))
    with sealed_archive(bench, "exported", rows) as archive, spark_session() as spark:
        copies = {"export": by_export(spark, archive), "JDBC": by_jdbc(spark, archive)}
        costs: dict[str, list[CpuSeconds]] = {name: [] for name in copies}
        for _ in range(bench.rounds + 1):
            for name, copy in copies.items():
                costs[name].append(cost(bench, name, archive, copy))
    ours, reference = (spent[1:] for spent in costs.values())
    times = statistics.median(other.spark / own.spark for own, other in zip(ours, reference, strict=True))
    yield Row(
        "export",
        f"{rows:,} messages of 1 KiB in {QUEUES} queues, PostgreSQL, local[{CORES}], median of {bench.rounds} rounds",
        f"{describe_costs(ours, rows)}; {times:.1f}× JDBC",
        f"Spark's JDBC reader to Parquet {describe_costs(reference, rows)}",
        [at_least(1, "× JDBC", times)],
    )


def describe_costs(costs: Sequence[CpuSeconds], rows: int) -> str:
    pace = rows / statistics.median(spent.spark for spent in costs)
    best = rows / min(spent.spark for spent in costs)
    postgres = statistics.median(spent.postgres for spent in costs) * 1_000_000 / rows
    return f"{pace:,.0f} rows/CPU-s (best round {best:,.0f}), PostgreSQL {postgres:.1f} µs a row beside it"
