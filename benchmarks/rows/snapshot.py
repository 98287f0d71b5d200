"""Receiving while a backup holds a snapshot and many messages pass through, whose rows PostgreSQL cannot vacuum."""

import asyncio
from collections.abc import Iterator

import asyncpg

from benchmarks.bench import Bench
from benchmarks.load import batch_lifecycle, drive, lifecycle
from benchmarks.measure import measure_alternating
from benchmarks.systems import System
from benchmarks.table import Row, at_most


def measure(bench: Bench) -> Iterator[Row]:
    """The cost of dead rows at the head of a queue."""
    with bench.peeklock() as ours:
        (free,) = measure_alternating([(ours, lifecycle, bench.units(2000))], 16, bench.rounds)
        held = asyncio.run(_under_snapshot(bench, ours))
        times = held / free.median_cpu_ms
        yield Row(
            "lifecycle under a held snapshot",
            f"{bench.units(100_000):,} messages churned, 16 callers",
            f"{held:.2f} ms; {times:.2f}× without",
            f"without a snapshot {free.median_cpu_ms:.2f} ms",
            [at_most(2, "×", times)],
        )


async def _under_snapshot(bench: Bench, ours: System) -> float:
    backup = await asyncpg.connect(ours.database_url)
    try:
        async with backup.transaction(isolation="repeatable_read"):
            await backup.fetchval("SELECT count(*) FROM queue")
            await drive(ours.target, batch_lifecycle, 4, bench.units(100_000) // 100)
            before = ours.total_cpu()
            carried = await drive(ours.target, lifecycle, 16, bench.units(2000))
            return (ours.total_cpu() - before) * 1000 / carried
    finally:
        await backup.close()
