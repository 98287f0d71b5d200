"""A hundred messages sent, received and completed in three calls, against the same SQL by hand."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.load import batch_lifecycle
from benchmarks.measure import measure_alternating, ratio
from benchmarks.references.hand_written import sql_batch_lifecycle
from benchmarks.systems import hand_written_sql
from benchmarks.table import Row, at_least, at_most


def measure(bench: Bench) -> Iterator[Row]:
    """The cost of a message when a hundred share each call."""
    with bench.peeklock() as ours, hand_written_sql(bench.postgres) as by_hand:
        units = bench.units(120)
        loads = [(ours, batch_lifecycle, units), (by_hand, sql_batch_lifecycle, units)]
        own, sql = measure_alternating(loads, 4, bench.rounds)
        times = ratio(own, sql)
        yield Row(
            "lifecycle in batches",
            "100 messages a call, 4 callers",
            f"{own.median_cpu_ms:.3f} ms a message ({own.parts()}), {own.throughput:.0f} messages/s; "
            f"{times:.2f}× the SQL by hand",
            f"SQL by hand {sql.median_cpu_ms:.3f} ms, {sql.throughput:.0f} messages/s",
            [at_most(1.7, "× the SQL by hand", times), at_least(8000, " messages/s", own.throughput)],
        )
