"""One durable send, against a typed endpoint that stores nothing."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.load import send_one
from benchmarks.measure import measure_alternating, ratio
from benchmarks.systems import reference
from benchmarks.table import Row, at_least


def measure(bench: Bench) -> Iterator[Row]:
    """The number of sends for the CPU of one echo."""
    with bench.peeklock() as ours, reference("echo") as echo:
        units = bench.units(6000)
        own, typed = measure_alternating([(ours, send_one, units), (echo, send_one, units)], 64, bench.rounds)
        times = ratio(typed, own)
        yield Row(
            "send",
            "64 callers",
            f"{own.median_cpu_ms:.2f} ms ({own.parts()}), {own.throughput:.0f}/s; {times:.2f}× the echo's throughput per CPU",
            f"typed FastAPI echo {typed.median_cpu_ms:.2f} ms",
            [at_least(1.0, "× the echo", times)],
        )
