"""Ten minutes of steady load, half of it through SQS: memory and cost stay flat, every message is accounted for."""

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import asyncpg

from benchmarks.bench import Bench
from benchmarks.load import Connection, Target, bare_request, drive
from benchmarks.machine import resident_mib
from benchmarks.measure import percentile
from benchmarks.soak_clients import NativeClient, SqsClient
from benchmarks.soak_load import LOCK_SECONDS, MessageLog, SoakClient, run_at_rate
from benchmarks.sqs_access import SQS_SETTINGS, through_sqs
from benchmarks.sqs_load import SqsTarget
from benchmarks.systems import System, call, reference
from benchmarks.table import Row, at_least, at_most, expect_none

SECONDS = 600
PERIODS = 10
CALLERS = 16
"""Every second one uses SQS, the others the native API, on the same queue."""

TURNS_PER_SECOND = 15
"""For each caller: 240 messages per second in total, far below the capacity of a server, so that the load is steady."""

BARE_REQUESTS = 5000
"""Measured after each period, to distinguish a slow machine from a server that becomes slower."""

SEED = 1


@dataclass(frozen=True, slots=True)
class Period:
    """A tenth of the soak; the memory is that at its end."""

    messages: int
    server_ms: float
    all_ms: float
    bare_ms: float
    resident_mib: float
    requests: Sequence[float]

    @property
    def bare_requests(self) -> float:
        """The cost of a message in bare requests."""
        return self.all_ms / self.bare_ms

    def clock_ms(self, percent: int) -> float:
        """The duration that a percentile of requests did not exceed, by the clock."""
        return percentile(self.requests, percent) * 1000

    def __str__(self) -> str:
        return (
            f"{self.messages:,} messages, {self.resident_mib:.1f} MiB, {self.all_ms:.3f} ms CPU a message "
            f"(server {self.server_ms:.3f}), bare request {self.bare_ms:.3f} ms, "
            f"request p50 {self.clock_ms(50):.1f} ms, p99 {self.clock_ms(99):.1f} ms"
        )


def measure(bench: Bench) -> Iterator[Row]:
    """All rows come from one soak of one server process."""
    seconds = SECONDS * bench.scale
    with bench.peeklock(more=SQS_SETTINGS) as ours, reference("bare") as bare:
        call(ours, "PUT", "/v1/queues/soak", {"lock_duration_seconds": LOCK_SECONDS})
        idle = resident_mib(ours.pid)
        message_log = MessageLog()
        periods = asyncio.run(_soak(ours.with_queue("soak"), bare, message_log, seconds / PERIODS))
        conditions = (
            f"{seconds:.0f} s, {CALLERS} callers, half of them through SQS, {len(message_log.accepted):,} messages"
        )
        yield _memory(conditions, idle, periods)
        yield _cost(conditions, periods)
        yield asyncio.run(_conservation(ours, conditions, message_log))


async def _soak(ours: System, bare: System, message_log: MessageLog, seconds: float) -> list[Period]:
    connections = [await ours.target.connect() for _ in range(CALLERS)]
    callers = soak_callers(ours, connections, message_log)
    periods: list[Period] = []
    for number in range(PERIODS):
        periods.append(await _period(ours, bare, callers, message_log, seconds))
        print(f"...   {(number + 1) * seconds:.0f} s: {periods[-1]}", file=sys.stderr, flush=True)
    for connection in connections:
        connection.close()
    return periods


def soak_callers(ours: System, connections: Sequence[Connection], message_log: MessageLog) -> Sequence[SoakClient]:
    """Return the caller of each connection, in turn one of the native API and one of SQS."""
    native, sqs = ours.target, through_sqs(ours).target
    assert isinstance(native, Target)
    assert isinstance(sqs, SqsTarget)
    callers: list[SoakClient] = []
    for number, connection in enumerate(connections):
        rng = Random(SEED + number)
        callers.append(
            SqsClient(connection, sqs, message_log, rng)
            if number % 2
            else NativeClient(connection, native, message_log, rng)
        )
    return callers


async def _period(
    ours: System, bare: System, callers: Sequence[SoakClient], message_log: MessageLog, seconds: float
) -> Period:
    before, sent = ours.cpu(), len(message_log.accepted)
    message_log.requests.clear()
    began = time.monotonic()
    await run_at_rate(callers, TURNS_PER_SECOND, seconds)
    if time.monotonic() - began > 2 * seconds:
        raise RuntimeError(f"a period of {seconds:.0f} s took more than twice as long: the load was not steady")
    after, messages, memory = ours.cpu(), len(message_log.accepted) - sent, resident_mib(ours.pid)
    spent = {part: (after[part] - before[part]) * 1000 / messages for part in after}
    idle = bare.total_cpu()
    await drive(bare.target, bare_request, CALLERS, BARE_REQUESTS)
    bare_ms = (bare.total_cpu() - idle) * 1000 / BARE_REQUESTS
    return Period(messages, spent["server"], sum(spent.values()), bare_ms, memory, tuple(message_log.requests))


def _memory(conditions: str, idle: float, periods: Sequence[Period]) -> Row:
    """Flat from the first period on, because by then every kind of request has run."""
    first, last = periods[0].resident_mib, periods[-1].resident_mib
    along = " / ".join(f"{period.resident_mib:.0f}" for period in periods)
    since = sum(period.messages for period in periods[1:])
    return Row(
        "memory of a worker in a soak",
        conditions,
        f"{along} MiB; {last / first:.2f}× the first, {(last - first) * (1 << 20) / since:.0f} bytes a message",
        f"idle before it {idle:.0f} MiB",
        [at_most(120, " MiB idle", idle), at_most(1.1, "× the first period", last / first)],
    )


def _cost(conditions: str, periods: Sequence[Period]) -> Row:
    """Compared with bare requests, which were measured in turn with it. Durations by the clock are given as well."""
    early, late = (statistics.median(period.bare_requests for period in some) for some in (periods[:3], periods[-3:]))
    costs = " / ".join(f"{period.all_ms:.2f}" for period in periods)
    middles = " / ".join(f"{period.clock_ms(50):.1f}" for period in periods)
    highs = " / ".join(f"{period.clock_ms(99):.0f}" for period in periods)
    return Row(
        "CPU a message in a soak",
        conditions,
        f"{costs} ms; {late:.1f} bare requests in the last three periods, {late / early:.2f}× the first three; "
        f"by the clock a request took p50 {middles} ms, p99 {highs} ms",
        f"bare request {' / '.join(f'{period.bare_ms:.3f}' for period in periods)} ms",
        [at_most(1.3, "×", late / early)],
    )


async def _conservation(ours: System, conditions: str, message_log: MessageLog) -> Row:
    there = await _still_there(ours)
    counts = call(ours, "GET", "/v1/queues/soak")["counts"]
    assert isinstance(counts, dict)
    counted = sum(counts.values())
    to_sqs = message_log.crossed(NativeClient.interface, SqsClient.interface)
    to_native = message_log.crossed(SqsClient.interface, NativeClient.interface)
    return Row(
        "conservation in a soak",
        conditions,
        f"{len(message_log.accepted):,} accepted = {len(message_log.completed):,} completed + {len(there):,} still there, "
        f"number by number; {message_log.unaccounted(there)} astray; {message_log.lost_locks} locks expired before they were settled; "
        f"{to_sqs:,} sent natively and completed through SQS, {to_native:,} the other way",
        f"the server counts {counted:,} still there",
        [
            expect_none("message astray", message_log.unaccounted(there)),
            expect_none("difference to the counts", abs(counted - len(there))),
            at_least(1, " completed through the other interface, each way", min(to_sqs, to_native)),
        ],
    )


async def _still_there(ours: System) -> set[int]:
    connection = await asyncpg.connect(ours.database_url)
    try:
        return {row[0] for row in await connection.fetch("SELECT sequence_number FROM message")}
    finally:
        await connection.close()
