"""Send, receive and delete as boto3 asks for them, against the native API and other servers that speak SQS."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.load import BatchLifecycle, WorkUnit, lifecycle
from benchmarks.measure import Cost, measure_alternating, ratio
from benchmarks.sqs_access import SQS_SETTINGS, through_sqs
from benchmarks.sqs_load import BATCH_SIZE, sqs_batch_lifecycle, sqs_lifecycle
from benchmarks.sqs_servers import missing_servers, other_servers
from benchmarks.systems import System, call
from benchmarks.table import Row, at_most

QUEUE = "sqs"
CALLERS = ((64, 2500), (16, 2000), (1, 1000))
BATCH_CALLERS = ((64, 8000), (16, 8000), (1, 8000))
"""The callers of a row, and its messages in each round. A message in a batch takes a third of the time, and processor time is
counted in steps of 10 ms."""
FEWER = 25
"""Other servers get this many times fewer messages, because one takes them tens of milliseconds."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A unit of work through SQS, the same through the native API, its messages, the callers of its rows, and how many times that it may cost."""

    name: str
    conditions: str
    through_sqs: WorkUnit
    through_api: WorkUnit
    messages: int
    callers: Sequence[tuple[int, int]]
    limit: float


COMPARISONS = (
    Comparison("sqs", "", sqs_lifecycle, lifecycle, 1, CALLERS, 1.25),
    Comparison(
        "sqs in batches",
        f"{BATCH_SIZE} messages a call, ",
        sqs_batch_lifecycle,
        BatchLifecycle(BATCH_SIZE),
        BATCH_SIZE,
        BATCH_CALLERS,
        1.3,
    ),
)


@dataclass(frozen=True, slots=True)
class Systems:
    """One server through both interfaces, and the other servers."""

    through_sqs: System
    through_api: System
    others: Sequence[System]


def measure(bench: Bench) -> Iterator[Row]:
    """One message in each call, and ten, with many callers, with fewer, and with one."""
    with bench.peeklock(more=SQS_SETTINGS) as ours, other_servers(bench.folder) as others:
        call(ours, "PUT", f"/v1/queues/{QUEUE}", {})
        systems = Systems(through_sqs(ours.with_queue(QUEUE)), ours, others)
        for comparison in COMPARISONS:
            for callers, messages in comparison.callers:
                yield _row(bench, systems, comparison, callers, messages)


def _row(bench: Bench, systems: Systems, comparison: Comparison, callers: int, messages: int) -> Row:
    units = bench.units(messages) // comparison.messages
    # Of other servers only single messages are measured: moto answers concurrent batches with errors.
    others = systems.others if comparison.messages == 1 else ()
    loads = [
        (systems.through_sqs, comparison.through_sqs, units),
        (systems.through_api, comparison.through_api, units),
        *((other, comparison.through_sqs, max(callers, units // FEWER)) for other in others),
    ]
    own, native, *rest = measure_alternating(loads, callers, bench.rounds)
    times = ratio(own, native)
    return Row(
        comparison.name,
        f"{comparison.conditions}{callers} caller{'s' if callers > 1 else ''}",
        f"{own.median_cpu_ms:.2f} ms ({own.parts()}), {own.throughput:.0f}/s; {times:.2f}× the native API",
        "; ".join([f"native API {native.median_cpu_ms:.2f} ms", *_figures(own, others, rest), *missing_servers()]),
        [at_most(comparison.limit, "× the native API", times)],
    )


def _figures(own: Cost, others: Sequence[System], costs: Sequence[Cost]) -> list[str]:
    return [
        f"{other.name} {cost.median_cpu_ms:.1f} ms, {ratio(cost, own):.0f}× ours"
        for other, cost in zip(others, costs, strict=True)
    ]
