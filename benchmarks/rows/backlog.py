"""Receiving from a queue with many available or scheduled messages, and the memory of the server."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.fill_queue import fill, fill_scheduled
from benchmarks.load import lifecycle
from benchmarks.machine import resident_mib
from benchmarks.measure import measure_alternating, ratio
from benchmarks.systems import System, call
from benchmarks.table import Row, at_most


def measure(bench: Bench) -> Iterator[Row]:
    """A message at the head of a long queue costs as much as in a short one. The server does not load the backlog."""
    sizes = [int(size * bench.scale) for size in (10_000, 100_000, 1_000_000)]
    with bench.peeklock() as ours:
        queues = _filled(ours, sizes)
        before = resident_mib(ours.pid)
        yield _depth(bench, queues, sizes)
        after = resident_mib(ours.pid)
        yield Row(
            "memory of a worker",
            "over that backlog",
            f"{after:.0f} MiB; {after / before:.2f}×",
            f"before the load {before:.0f} MiB",
            [at_most(120, " MiB idle", before), at_most(1.25, "×", after / before)],
        )


def _filled(ours: System, sizes: list[int]) -> list[System]:
    names = ("small", "middle", "large", "later")
    for name in names:
        call(ours, "PUT", f"/v1/queues/{name}", {})
    for name, size in zip(names, sizes, strict=False):
        fill(ours, name, size)
    fill_scheduled(ours, "later", sizes[-1])
    return [ours.with_queue(name) for name in names]


def _depth(bench: Bench, queues: list[System], sizes: list[int]) -> Row:
    costs = measure_alternating([(queue, lifecycle, bench.units(1500)) for queue in queues], 16, bench.rounds)
    small, _, large, later = costs
    worst = max(ratio(large, small), ratio(later, small))
    return Row(
        "lifecycle over a backlog",
        f"{', '.join(f'{size:,}' for size in sizes)} waiting; {sizes[-1]:,} scheduled; 16 callers",
        f"{' / '.join(f'{cost.median_cpu_ms:.2f}' for cost in costs)} ms; worst {worst:.2f}×",
        f"itself at {sizes[0]:,}",
        [at_most(1.3, "×", worst)],
    )
