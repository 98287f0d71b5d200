"""The cost of lifecycles that begin at random times, against the same server whose coalescers wait for no further callers."""

import statistics
import sys
from collections.abc import Iterator, Sequence

from benchmarks.bench import Bench
from benchmarks.measure import measure_alternating, percentile, ratio
from benchmarks.open_arrivals import OpenArrivals
from benchmarks.systems import System
from benchmarks.table import Row, at_most

UNGATHERED = (sys.executable, "-m", "benchmarks.references.ungathered", "serve")
RATES = (100, 400, 800, 1200, 2400)
QUEUES = (1, 50)
SECONDS = 4
"""How long a round is, unless the servers cannot keep up."""


def measure(bench: Bench) -> Iterator[Row]:
    """Five rates over one queue and over many."""
    with bench.peeklock() as ours, bench.peeklock(database="ungathered", command=UNGATHERED) as ungathered:
        for queues in QUEUES:
            for rate in RATES:
                yield _row(bench, ours, ungathered, rate, queues)


def _row(bench: Bench, ours: System, ungathered: System, rate: int, queues: int) -> Row:
    own, other = (OpenArrivals(rate, queues, bench.units(rate * SECONDS)) for _ in range(2))
    cost, reference = measure_alternating([(ours, own, 1), (ungathered, other, 1)], 1, bench.rounds)
    times = ratio(cost, reference)
    slower = statistics.median(
        percentile(one, 99) / percentile(another, 99)
        for one, another in zip(own.seconds[1:], other.seconds[1:], strict=True)
    )
    return Row(
        "open arrivals",
        f"{rate:,} lifecycles per second at random times, queues: {queues}",
        f"{cost.median_cpu_ms:.2f} ms ({cost.parts()}), {_times(own.seconds[1:])}; {times:.2f}×, p99 {slower:.2f}×",
        f"without waiting for more callers {reference.median_cpu_ms:.2f} ms ({reference.parts()}), {_times(other.seconds[1:])}",
        [at_most(0.85, "×", times), at_most(1.1, "× p99", slower)],
    )


def _times(rounds: Sequence[Sequence[float]]) -> str:
    """Return the median over rounds of the time of a lifecycle."""
    return ", ".join(
        f"p{percent} {statistics.median(percentile(seconds, percent) for seconds in rounds) * 1000:.1f} ms"
        for percent in (50, 99)
    )
