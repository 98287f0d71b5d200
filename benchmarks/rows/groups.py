"""Messages of groups: what the limit costs, and that neither many groups nor a long one make it dearer."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.fill_queue import fill_groups
from benchmarks.load import GroupedLifecycle, lifecycle
from benchmarks.measure import Cost, measure_alternating, ratio
from benchmarks.systems import System, call
from benchmarks.table import Row, at_most

GROUPS = 1000
"""The groups to which the load sends in turn."""

IN_FLIGHT = 64
"""The limit of the long group, so that no caller waits for another one."""


def measure(bench: Bench) -> Iterator[Row]:
    """A queue with groups against one without, and over 100,000 messages that wait in many groups or in one."""
    backlog = int(100_000 * bench.scale)
    with bench.peeklock() as ours:
        plain, grouped = ours, _queue(ours, "grouped", 1)
        units = bench.units(3000)
        loads = [(grouped, GroupedLifecycle(GROUPS), units), (plain, lifecycle, units)]
        yield _against_plain(*measure_alternating(loads, 64, bench.rounds))
        many, long = _queue(ours, "many", 1), _queue(ours, "long", IN_FLIGHT)
        fill_groups(ours, "many", messages=backlog, groups=backlog, in_flight=1)
        fill_groups(ours, "long", messages=backlog, groups=1, in_flight=IN_FLIGHT)
        loads = [
            (grouped, GroupedLifecycle(GROUPS), bench.units(1500)),
            (many, GroupedLifecycle(GROUPS), bench.units(1500)),
            (long, GroupedLifecycle(1), bench.units(1500)),
        ]
        yield _over_backlog(backlog, measure_alternating(loads, 16, bench.rounds))


def _queue(ours: System, name: str, group_in_flight: int) -> System:
    call(ours, "PUT", f"/v1/queues/{name}", {"group_in_flight": group_in_flight})
    return ours.with_queue(name)


def _against_plain(grouped: Cost, plain: Cost) -> Row:
    times = ratio(grouped, plain)
    return Row(
        "lifecycle in groups",
        f"64 callers, {GROUPS:,} groups with one message in flight",
        f"{grouped.median_cpu_ms:.2f} ms ({grouped.parts()}), {grouped.throughput:.0f}/s; {times:.2f}× without groups",
        f"without groups {plain.median_cpu_ms:.2f} ms",
        [at_most(1.5, "× without groups", times)],
    )


def _over_backlog(backlog: int, costs: list[Cost]) -> Row:
    empty, many, long = costs
    worst = max(ratio(many, empty), ratio(long, empty))
    return Row(
        "lifecycle in groups over a backlog",
        f"{backlog:,} groups of one message; a group of {backlog:,} with {IN_FLIGHT} in flight; 16 callers",
        f"{many.median_cpu_ms:.2f} / {long.median_cpu_ms:.2f} ms; worst {worst:.2f}×",
        f"no backlog {empty.median_cpu_ms:.2f} ms",
        [at_most(1.3, "×", worst)],
    )
