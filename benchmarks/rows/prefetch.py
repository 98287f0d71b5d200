"""Many callers that send one by one, and one Python worker, against publishers and a consumer of RabbitMQ."""

import asyncio
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from peeklock_client import Worker

from benchmarks.bench import Bench
from benchmarks.load import Target, drive, send_one
from benchmarks.machine import cpu_seconds
from benchmarks.rows.worker import client_of
from benchmarks.systems import ROOT, System
from benchmarks.table import Row, at_most
from tests.docs.other_brokers import PYTHON, PortMapper, RabbitServer
from tests.servers import ServerProcess

AnyServer = TypeVar("AnyServer", bound=ServerProcess)

CALLERS = 64
MESSAGES = 10_000
PREFETCH = 100
"""Messages that the consumer of RabbitMQ may hold. A worker of Peeklock fetches at most 50 at once by default."""

NOT_INSTALLED = "RabbitMQ is not installed here; `python3 dev.py test --nightly` installs it"


def measure(bench: Bench) -> Iterator[Row]:
    """The servers' CPU for a message that is sent alone, and received and settled by a worker as it does by default."""
    messages = bench.units(MESSAGES)
    with bench.peeklock() as ours, _rabbitmq(bench) as rabbit:
        own: list[float] = []
        other: list[float] = []
        for number in range(bench.rounds + 1):
            spent = _spent_ms(ours.total_cpu, lambda: asyncio.run(_send_and_work(ours, messages)), messages)
            rabbit_spent = None if rabbit is None else _rabbit_round(rabbit, number, messages)
            if number:
                own.append(spent)
                other += [] if rabbit_spent is None else [rabbit_spent]
        cost = statistics.median(own)
        yield Row(
            "prefetch",
            f"{CALLERS} callers send one by one, one Python worker with an empty handler; {messages:,} messages",
            f"{cost:.3f} ms",
            f"RabbitMQ, quorum queue, confirms, prefetch {PREFETCH}: {statistics.median(other):.3f} ms"
            if other
            else NOT_INSTALLED,
            [at_most(0.22, " ms", cost)],
        )


def _spent_ms(cpu: Callable[[], float], work: Callable[[], object], messages: int) -> float:
    before = cpu()
    work()
    return (cpu() - before) * 1000 / messages


async def _send_and_work(ours: System, messages: int) -> None:
    target = ours.target
    assert isinstance(target, Target)
    async with client_of(ours) as client:
        worker, done, left = Worker(client), asyncio.Event(), messages

        @worker.on(target.queue)
        async def handle(_: dict[str, str]) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        await worker.start()
        await drive(target, send_one, CALLERS, messages)
        await done.wait()
        await worker.stop()


@contextmanager
def _rabbitmq(bench: Bench) -> Iterator[RabbitServer | None]:
    """RabbitMQ with its own port mapper, or None where it is not installed."""
    if not (RabbitServer.installed() and PYTHON.exists()):
        yield None
        return
    with ExitStack() as running:
        mapper = _started(PortMapper(bench.folder / "epmd"), running)
        yield _started(RabbitServer(bench.folder / "rabbitmq", str(mapper.port)), running)


def _started(server: AnyServer, running: ExitStack) -> AnyServer:
    server.directory.mkdir()
    server.start()
    running.callback(server.stop)
    return server


def _rabbit_round(rabbit: RabbitServer, number: int, messages: int) -> float:
    load = [PYTHON, "-m", "benchmarks.references.rabbitmq_load"]
    arguments = [str(part) for part in (rabbit.port, f"bench.{number}", CALLERS, messages, PREFETCH)]
    return _spent_ms(
        lambda: cpu_seconds([rabbit.pid]), lambda: subprocess.run([*load, *arguments], cwd=ROOT, check=True), messages
    )
