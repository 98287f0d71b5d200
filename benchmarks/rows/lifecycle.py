"""Send, receive, complete: the cost of a message, against the same SQL by hand, a bare request and the naive broker."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.load import bare_request, lifecycle
from benchmarks.measure import Cost, SystemLoad, measure_alternating, ratio
from benchmarks.references.hand_written import sql_lifecycle
from benchmarks.systems import System, hand_written_sql, reference
from benchmarks.table import Row, at_least, at_most

FEWER_CALLERS = ((32, 2500, 0.85), (16, 2000, 1.2), (8, 1500, 1.5), (4, 1200, 2.2), (1, 1000, 3.6))
"""The callers of a row, its units, and how many times the SQL by hand it may cost."""


@dataclass(frozen=True, slots=True)
class Systems:
    """Peeklock and what runs in turn with it in every row."""

    ours: System
    by_hand: System
    bare: System


def measure(bench: Bench) -> Iterator[Row]:
    """With 64 callers whose calls share statements, with fewer, and with one that shares nothing."""
    with bench.peeklock() as ours, hand_written_sql(bench.postgres) as by_hand, reference("bare") as bare:
        systems = Systems(ours, by_hand, bare)
        with reference("naive", bench.postgres) as naive:
            yield _many_callers(bench, systems, naive)
        for callers, units, limit in FEWER_CALLERS:
            yield _fewer_callers(bench, systems, callers, bench.units(units), limit)


def _many_callers(bench: Bench, systems: Systems, naive: System) -> Row:
    units = bench.units(3000)
    drives = [*_drives(systems, units), (naive, lifecycle, units // 10)]
    own, sql, bare, simple = measure_alternating(drives, 64, bench.rounds)
    by_hand, requests, times = ratio(own, sql), ratio(own, bare), ratio(simple, own)
    return Row(
        "lifecycle",
        "64 callers",
        f"{_figures(own, by_hand)}, {requests:.1f} bare requests",
        f"{_references(sql, bare)}; naive {simple.median_cpu_ms:.2f} ms, {times:.1f}× ours",
        [
            at_most(0.75, "× the SQL by hand", by_hand),
            at_least(15, "× for naive", times),
        ],
    )


def _fewer_callers(bench: Bench, systems: Systems, callers: int, units: int, limit: float) -> Row:
    own, sql, bare = measure_alternating(_drives(systems, units), callers, bench.rounds)
    by_hand = ratio(own, sql)
    return Row(
        "lifecycle",
        f"{callers} caller{'s' if callers > 1 else ''}",
        f"{_figures(own, by_hand)}, {ratio(own, bare):.1f} bare requests",
        _references(sql, bare),
        [at_most(limit, "× the SQL by hand", by_hand)],
    )


def _drives(systems: Systems, units: int) -> list[SystemLoad]:
    return [
        (systems.ours, lifecycle, units),
        (systems.by_hand, sql_lifecycle, units),
        (systems.bare, bare_request, units * 3),
    ]


def _figures(own: Cost, by_hand: float) -> str:
    return f"{own.median_cpu_ms:.2f} ms ({own.parts()}), {own.throughput:.0f}/s; {by_hand:.2f}× the SQL by hand"


def _references(sql: Cost, bare: Cost) -> str:
    return f"SQL by hand {sql.median_cpu_ms:.2f} ms; bare request {bare.median_cpu_ms:.3f} ms"
