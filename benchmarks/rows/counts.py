"""Exact counts of many queues over many messages."""

from collections.abc import Iterator
from typing import Any

from benchmarks.bench import Bench
from benchmarks.fill_queue import fill
from benchmarks.systems import System, call
from benchmarks.table import Row, at_most, expect_none

QUEUES = 500
READS = 5


def measure(bench: Bench) -> Iterator[Row]:
    """One list of all queues, as a console or a scrape requests it. The first one is not counted."""
    size = int(1_000_000 * bench.scale)
    with bench.peeklock() as ours:
        for number in range(QUEUES):
            call(ours, "PUT", f"/v1/queues/queue-{number:03}", {})
        fill(ours, "queue-%", size)
        counted = _counted(ours)
        before = ours.total_cpu()
        for _ in range(READS):
            _counted(ours)
        spent = (ours.total_cpu() - before) * 1000 / READS
        yield Row(
            "counts of queues",
            f"{QUEUES} queues over {size:,} messages, exact",
            f"{spent:.0f} ms CPU",
            "itself",
            [at_most(50, " ms", spent), expect_none("message miscounted", abs(size - counted))],
        )


def _counted(system: System) -> int:
    """Return how many messages the list of queues reports."""
    page: dict[str, Any] = call(system, "GET", f"/v1/queues?limit={QUEUES}")
    return sum(queue["counts"]["available"] for queue in page["items"])
