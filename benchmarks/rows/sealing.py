"""The cost that sealing the archive adds to a lifecycle, including the vacuum of the dead rows."""

import asyncio
import statistics
from collections.abc import Iterator

import asyncpg

from benchmarks.bench import Bench
from benchmarks.load import drive, lifecycle
from benchmarks.systems import System
from benchmarks.table import Row, at_most

CALLERS = 16
SEAL_SECONDS = 1
"""Ten times as often as usual, so that no round waits for long."""

NEVER_SECONDS = 3600
POLL_SECONDS = 0.05


def measure(bench: Bench) -> Iterator[Row]:
    """A server that seals messages one second after they ended, against one that seals none, round by round."""
    units = bench.units(4000)
    with (
        bench.peeklock(seal_seconds=SEAL_SECONDS) as ours,
        bench.peeklock(seal_seconds=NEVER_SECONDS, database="unsealed") as without,
    ):
        rounds = [asyncio.run(_one_round(ours, without, units)) for _ in range(bench.rounds + 1)][1:]
    sealing, plain = (statistics.median(costs) for costs in zip(*rounds, strict=True))
    more = statistics.median(one / other for one, other in rounds) * 100 - 100
    yield Row(
        "sealing",
        f"{CALLERS} callers, {units} lifecycles a round, all of them sealed",
        f"{sealing:.3f} ms a lifecycle; {more:+.1f} %",
        f"without sealing {plain:.3f} ms",
        [at_most(10, " % more", more)],
    )


async def _one_round(ours: System, without: System, units: int) -> tuple[float, float]:
    return await _cost(ours, units, "WHERE export_batch IS NULL"), await _cost(without, units, "WHERE false")


async def _cost(system: System, units: int, unfinished: str) -> float:
    """CPU milliseconds a lifecycle, until every message of the archive is sealed and the archive is vacuumed."""
    database = await asyncpg.connect(system.database_url)
    before = system.total_cpu()
    carried = await drive(system.target, lifecycle, CALLERS, units)
    while await database.fetchval(f"SELECT 1 FROM archive_seal {unfinished} LIMIT 1"):
        await asyncio.sleep(POLL_SECONDS)
    await database.execute("VACUUM archive, archive_seal")
    spent = system.total_cpu() - before
    await database.close()
    return spent * 1000 / carried
