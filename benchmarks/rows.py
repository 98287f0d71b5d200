"""The rows of the table: each measures one thing beside its reference and says what was aimed at."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.request import urlopen

import asyncpg

from benchmarks.load import (
    Connection,
    TwoRequests,
    bare_request,
    batch_lifecycle,
    drive,
    lifecycle,
    send_one,
)
from benchmarks.machine import resident_mib
from benchmarks.measure import in_turn, ratio
from benchmarks.systems import System, call, peeklock, reference, sql
from tests.servers import PostgresServer, RedisServer


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    measured: str
    reference: str
    target: str
    met: bool

    def as_json(self) -> dict[str, object]:
        """The row for machines."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Bench:
    """What the rows share: servers, a folder, and how much work a round is (1.0 is the whole run)."""

    postgres: PostgresServer
    redis: RedisServer
    folder: Path
    scale: float

    def units(self, whole: int) -> int:
        """So many units in this run."""
        return max(20, int(whole * self.scale))

    @property
    def rounds(self) -> int:
        """Counted rounds of each comparison."""
        return 5 if self.scale >= 1 else 3

    @contextmanager
    def peeklock(self, *, workers: int = 1, database: str = "bench") -> Iterator[System]:
        """Peeklock over PostgreSQL and Redis."""
        with peeklock(self.folder, self.postgres, self.redis, workers=workers, database=database) as system:
            yield system


Measure: TypeAlias = Callable[[Bench], Iterator[Row]]


def lifecycles(bench: Bench) -> Iterator[Row]:
    """Send, receive, complete: against a bare request and against the naive broker."""
    with bench.peeklock() as ours, reference("bare") as bare, reference("naive", bench.postgres) as naive:
        units = bench.units(3000)
        drives = [(ours, lifecycle, units), (bare, bare_request, units * 3), (naive, lifecycle, units // 10)]
        own, floor, simple = in_turn(drives, 64, bench.rounds)
        bare_ratio, naive_ratio = ratio(own, floor), ratio(simple, own)
        yield Row(
            "lifecycle, 64 callers",
            f"{own.middle:.2f} ms ({own.parts()}), {own.throughput:.0f}/s; {bare_ratio:.1f} bare requests",
            f"bare request {floor.middle:.3f} ms; naive {simple.middle:.2f} ms, {naive_ratio:.1f}× ours",
            "≤ 6.5 bare requests; naive ≥ 15× ours",
            bare_ratio <= 6.5 and naive_ratio >= 15,
        )
        for callers, limit, whole in ((16, 0.8, 2000), (1, 2.5, 500)):
            own, floor = in_turn(
                [(ours, lifecycle, bench.units(whole)), (bare, bare_request, bench.units(whole))], callers, bench.rounds
            )
            yield Row(
                f"lifecycle, {callers} callers" if callers > 1 else "lifecycle, 1 caller",
                f"{own.middle:.2f} ms ({own.parts()}), {own.throughput:.0f}/s",
                f"bare request {floor.middle:.3f} ms",
                f"≤ {limit} ms",
                own.middle <= limit,
            )


def sends(bench: Bench) -> Iterator[Row]:
    """One send against an endpoint that does nothing."""
    with bench.peeklock() as ours, reference("echo") as echo:
        units = bench.units(6000)
        own, typed = in_turn([(ours, send_one, units), (echo, send_one, units)], 64, bench.rounds)
        times = ratio(typed, own)
        yield Row(
            "send, 64 callers",
            f"{own.middle:.2f} ms ({own.parts()}), {own.throughput:.0f}/s; {times:.2f}× the echo's throughput per CPU",
            f"typed FastAPI echo {typed.middle:.2f} ms",
            "≥ 1.0×",
            times >= 1.0,
        )


def batches(bench: Bench) -> Iterator[Row]:
    """A hundred messages a call."""
    with bench.peeklock() as ours:
        (own,) = in_turn([(ours, batch_lifecycle, bench.units(120))], 4, bench.rounds)
        yield Row(
            "lifecycle, 100 messages a call",
            f"{own.middle:.3f} ms a message ({own.parts()}), {own.throughput:.0f} messages/s",
            "itself",
            "≤ 0.12 ms and ≥ 8000 messages/s",
            own.middle <= 0.12 and own.throughput >= 8000,
        )


def two_requests(bench: Bench) -> Iterator[Row]:
    """The loop of a worker that settles with its next receive."""
    with bench.peeklock() as ours:
        units = bench.units(2500)
        two, three = in_turn([(ours, TwoRequests(), units), (ours, lifecycle, units)], 64, bench.rounds)
        share = ratio(two, three)
        yield Row(
            "lifecycle in two requests",
            f"{two.middle:.2f} ms; {share:.2f}× three requests",
            f"three requests {three.middle:.2f} ms",
            "≤ 0.7×",
            share <= 0.7,
        )


def embedded(bench: Bench) -> Iterator[Row]:
    """SQLite, every commit on the disk."""
    folder = bench.folder / "sqlite"
    folder.mkdir()
    with peeklock(folder, None, None) as ours, reference("naive", sqlite=folder / "naive.db") as naive:
        units = bench.units(1500)
        own, simple = in_turn([(ours, lifecycle, units), (naive, lifecycle, max(20, units // 15))], 64, bench.rounds)
        times = ratio(simple, own)
        yield Row(
            "SQLite, synchronous FULL, 64 callers",
            f"{own.middle:.2f} ms, {own.throughput:.0f}/s",
            f"session per request over aiosqlite {simple.middle:.2f} ms, {times:.1f}× ours",
            "≥ 10×",
            times >= 10,
        )


FILL = """
INSERT INTO message (queue_id, state, home_state, priority, enqueued_at, available_at, delivery_count, failure_count,
    lock_generation, message_id, body_kind, body)
SELECT (SELECT id FROM queue WHERE name = '{queue}'), {state}, 1, 4, {at} + n, {at} + n, 0, 0, 0, 'filled-' || n, 1,
    convert_to('{{"text":"' || repeat('x', 1000) || '"}}', 'UTF8')
FROM generate_series(1, {count}) AS n
"""


def backlogs(bench: Bench) -> Iterator[Row]:
    """Receiving while much is waiting, or much is scheduled."""
    sizes = [int(size * bench.scale) for size in (10_000, 100_000, 1_000_000)]
    with bench.peeklock() as ours:
        for queue in ("small", "middle", "large", "later"):
            call(ours, "PUT", f"/v1/queues/{queue}", {})
        now = int(time.time() * 1_000_000)
        for queue, size in zip(("small", "middle", "large"), sizes, strict=True):
            asyncio.run(sql(ours, FILL.format(queue=queue, state=1, at=now - 10**10, count=size)))
        asyncio.run(sql(ours, FILL.format(queue="later", state=3, at=now + 10**13, count=sizes[-1])))
        asyncio.run(sql(ours, "VACUUM ANALYZE message"))
        before = resident_mib(ours.pid)
        drives = [(_on(ours, queue), lifecycle, bench.units(1500)) for queue in ("small", "middle", "large", "later")]
        small, middle, large, later = in_turn(drives, 16, bench.rounds)
        worst = max(ratio(large, small), ratio(later, small))
        yield Row(
            f"lifecycle with {sizes[0]:,}, {sizes[1]:,}, {sizes[2]:,} waiting; {sizes[2]:,} scheduled",
            " / ".join(f"{cost.middle:.2f}" for cost in (small, middle, large, later)) + f" ms; worst {worst:.2f}×",
            f"itself at {sizes[0]:,}",
            "≤ 1.3×",
            worst <= 1.3,
        )
        after = resident_mib(ours.pid)
        yield Row(
            "memory of a worker over that backlog",
            f"{after:.0f} MiB",
            f"before the load {before:.0f} MiB",
            "≤ 120 MiB idle, flat",
            before <= 120 and after <= before * 1.25,
        )


def snapshots(bench: Bench) -> Iterator[Row]:
    """Receiving while a backup holds a snapshot and messages churn past it."""
    with bench.peeklock() as ours:
        (free,) = in_turn([(ours, lifecycle, bench.units(2000))], 16, bench.rounds)
        held = asyncio.run(_under_snapshot(bench, ours))
        times = held / free.middle
        yield Row(
            f"lifecycle under a held snapshot, {bench.units(100_000):,} messages churned",
            f"{held:.2f} ms; {times:.2f}× without",
            f"without a snapshot {free.middle:.2f} ms",
            "≤ 2×",
            times <= 2,
        )


async def _under_snapshot(bench: Bench, ours: System) -> float:
    backup = await asyncpg.connect(ours.database_url)
    try:
        async with backup.transaction(isolation="repeatable_read"):
            await backup.fetchval("SELECT count(*) FROM queue")
            await drive(ours.target, batch_lifecycle, 4, bench.units(100_000) // 100)
            before = sum(ours.cpu().values())
            carried = await drive(ours.target, lifecycle, 16, bench.units(2000))
            return (sum(ours.cpu().values()) - before) * 1000 / carried
    finally:
        await backup.close()


def waiting(bench: Bench) -> Iterator[Row]:
    """A thousand receivers on an empty queue: what they cost while nothing comes, and how soon one hears."""
    receivers = bench.units(1000)
    with bench.peeklock() as ours:
        share, delays = asyncio.run(_wait_and_wake(ours, receivers))
        delays.sort()
        middle = delays[len(delays) // 2] * 1000
        yield Row(
            f"{receivers:,} receivers waiting",
            f"{share * 100:.1f} % of a core; woken p50 {middle:.1f} ms",
            "itself",
            "≤ 2 % of a core; p50 ≤ 10 ms",
            share <= 0.02 and middle <= 10,
        )


async def _wait_and_wake(ours: System, receivers: int) -> tuple[float, list[float]]:
    call(ours, "PUT", "/v1/queues/idle", {})
    target = _on(ours, "idle").target
    arrived: asyncio.Queue[float] = asyncio.Queue()

    async def wait() -> None:
        connection = await Connection(target.host, target.port, target.headers).open()
        _, answer = await connection.call("POST", target.path("messages/receive"), b'{"wait_seconds": 50}')
        if b"lock_token" in answer:
            arrived.put_nowait(time.monotonic())
        connection.close()

    tasks = [asyncio.create_task(wait()) for _ in range(receivers)]
    while _metric(ours, "peeklock_waiting_receivers") < receivers:
        await asyncio.sleep(0.5)
    await asyncio.sleep(2)
    began, before = time.monotonic(), sum(ours.cpu().values())
    await asyncio.sleep(10)
    share = (sum(ours.cpu().values()) - before) / (time.monotonic() - began)
    sender = await Connection(target.host, target.port, target.headers).open()
    delays: list[float] = []
    for _ in range(50):
        sent = time.monotonic()
        await sender.call("POST", target.path("messages"), b'{"body": 1}')
        delays.append(await arrived.get() - sent)
    sender.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return share, delays


def counts(bench: Bench) -> Iterator[Row]:
    """Exact counts of 500 queues over a million messages."""
    size = int(1_000_000 * bench.scale)
    with bench.peeklock() as ours:
        for number in range(500):
            call(ours, "PUT", f"/v1/queues/queue-{number:03}", {})
        spread = FILL.replace("(SELECT id FROM queue WHERE name = '{queue}')", "1 + n % 500")
        first = "(SELECT min(id) FROM queue)"
        asyncio.run(sql(ours, spread.replace("1 + n % 500", f"{first} + n % 500").format(state=1, at=0, count=size)))
        asyncio.run(sql(ours, "VACUUM ANALYZE message"))
        call(ours, "GET", "/v1/queues?limit=500")
        before = sum(ours.cpu().values())
        for _ in range(5):
            call(ours, "GET", "/v1/queues?limit=500")
        spent = (sum(ours.cpu().values()) - before) * 1000 / 5
        yield Row(
            f"counts of 500 queues over {size:,} messages", f"{spent:.0f} ms CPU", "itself", "≤ 50 ms", spent <= 50
        )


def renewals(bench: Bench) -> Iterator[Row]:
    """How many renewals at half the lock duration get by without SQL."""
    with bench.peeklock() as ours:
        call(ours, "PUT", "/v1/queues/long", {"lock_duration_seconds": 2})
        done = asyncio.run(_renew(_on(ours, "long"), locks=20, times=24))
        without = _metric(ours, 'peeklock_events_total{event="renewals_without_sql"}')
        share = without / done
        yield Row(
            "renewals at half the lock duration",
            f"{share * 100:.0f} % of {done} without SQL",
            "itself",
            "≥ 80 %",
            share >= 0.8,
        )


async def _renew(ours: System, locks: int, times: int) -> int:
    target = ours.target
    connection = await Connection(target.host, target.port, target.headers).open()
    for _ in range(locks):
        await send_one(connection, target)
    _, answer = await connection.call("POST", target.path("messages/receive"), b'{"max_messages": 100}')
    tokens = [message["lock_token"] for message in json.loads(answer)["messages"]]
    for _ in range(times):
        await asyncio.sleep(1)
        for token in tokens:
            status, answer = await connection.call("POST", target.path(f"locks/{token}/renew"))
            if status != 200:
                raise RuntimeError(f"a renewal was answered {status}: {answer!r}")
    connection.close()
    return len(tokens) * times


def second_worker(bench: Bench) -> Iterator[Row]:
    """What a message costs with two worker processes instead of one."""
    units = bench.units(3000)
    with bench.peeklock() as one, bench.peeklock(workers=2, database="bench2") as two:
        single, double = in_turn([(one, lifecycle, units), (two, lifecycle, units)], 64, bench.rounds)
        times = ratio(double, single)
        yield Row(
            "lifecycle with a second worker",
            f"{double.middle:.2f} ms, {double.throughput:.0f}/s; {times:.2f}× one worker",
            f"one worker {single.middle:.2f} ms, {single.throughput:.0f}/s",
            "≤ 1.3×",
            times <= 1.3,
        )


def _on(system: System, queue: str) -> System:
    target = system.target
    return System(
        system.name,
        type(target)(target.host, target.port, queue, target.headers),
        system.processes,
        system.database_url,
    )


def _metric(system: System, name: str) -> float:
    with urlopen(f"http://{system.target.host}:{system.target.port}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name):
                return float(line.rpartition(" ")[2])
    return 0.0


ROWS: dict[str, Measure] = {
    # First, while PostgreSQL has nothing of the others to tidy up.
    "waiting": waiting,
    "lifecycle": lifecycles,
    "send": sends,
    "batch": batches,
    "two-requests": two_requests,
    "sqlite": embedded,
    "backlog": backlogs,
    "snapshot": snapshots,
    "counts": counts,
    "renewals": renewals,
    "second-worker": second_worker,
}
