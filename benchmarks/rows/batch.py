"""A hundred messages sent, received and completed in three calls."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.load import batch_lifecycle
from benchmarks.measure import measure_alternating
from benchmarks.table import Row, at_least, at_most


def measure(bench: Bench) -> Iterator[Row]:
    """What a message costs when its calls are shared by a hundred."""
    with bench.peeklock() as ours:
        (own,) = measure_alternating([(ours, batch_lifecycle, bench.units(120))], 4, bench.rounds)
        yield Row(
            "lifecycle in batches",
            "100 messages a call, 4 callers",
            f"{own.median_cpu_ms:.3f} ms a message ({own.parts()}), {own.throughput:.0f} messages/s",
            "itself",
            [at_most(0.12, " ms", own.median_cpu_ms), at_least(8000, " messages/s", own.throughput)],
        )
