"""The cost of lifecycles that begin at random times, against the same server whose coalescers wait for no further callers."""

import statistics
import sys
from collections.abc import Iterator, Sequence

from benchmarks.bench import Bench
from benchmarks.load import lifecycle
from benchmarks.measure import measure_alternating, percentile, ratio
from benchmarks.open_arrivals import OpenArrivals, PacedCaller
from benchmarks.systems import System
from benchmarks.table import Row, at_most

UNGATHERED = (sys.executable, "-m", "benchmarks.references.ungathered", "serve")
RATES = (100, 400, 800, 1200, 2400)
PAUSED_RATE = RATES[0]
QUEUES = (1, 50)
SECONDS = 4
"""How long a round is, unless the servers cannot keep up."""


def measure(bench: Bench) -> Iterator[Row]:
    """A caller that is alone, with pauses and without, and then five rates over one queue and over many."""
    yield _lone_row(bench)
    with bench.peeklock() as ours, bench.peeklock(database="ungathered", command=UNGATHERED) as ungathered:
        for queues in QUEUES:
            for rate in RATES:
                yield _row(bench, ours, ungathered, rate, queues)


def _lone_row(bench: Bench) -> Row:
    """One caller at the lowest rate, and the same caller without pauses. Nothing is shared."""
    units = bench.units(PAUSED_RATE * SECONDS)
    with bench.peeklock() as ours:
        loads = [(ours, PacedCaller(PAUSED_RATE, units), 1), (ours, lifecycle, units)]
        paced, unpaced = measure_alternating(loads, 1, bench.rounds)
    return Row(
        "paused arrivals",
        f"{PAUSED_RATE} lifecycles per second of one caller, at even intervals",
        f"{paced.median_cpu_ms:.2f} ms ({paced.parts()}); {ratio(paced, unpaced):.2f}× without pauses",
        f"the same caller without pauses {unpaced.median_cpu_ms:.2f} ms ({unpaced.parts()})",
        [],
    )


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
