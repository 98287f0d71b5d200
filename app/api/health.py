"""What those who watch a server ask: does it live, does it take work, what has it done?"""

import asyncio

from app.api.desk import Call
from app.api.metrics import Snapshot
from app.api.operation import PROMETHEUS, Reply, operation
from app.broker.broker import Broker
from app.broker.queues import Listed, list_queues
from app.domain.refusals import ShuttingDown, StoreUnavailable
from app.wire.health import Liveness, Readiness

STORE_PATIENCE_SECONDS = 1.0
"""A store that takes longer to tell the time is of no use to anybody who waits for a message."""

BITE = 500
"""Queues counted per statement for the metrics."""


@operation("GET", "/livez", right=None, tag="health", answers={200: Liveness})
async def check_live(_: Call[None]) -> Reply:
    """Say that the process answers, whatever else does not."""
    return Reply(Liveness())


@operation("GET", "/readyz", right=None, tag="health", answers={200: Readiness}, refusals=(503,))
async def check_ready(call: Call[None]) -> Reply:
    """Say whether this server takes work: it is not stopping, and its store answers within a second."""
    if call.desk.is_draining():
        raise ShuttingDown
    try:
        await asyncio.wait_for(call.broker.store.now(), STORE_PATIENCE_SECONDS)
    except TimeoutError:
        raise StoreUnavailable from None
    return Reply(Readiness(call.broker.locks.state))


@operation("GET", "/metrics", right=None, tag="health", answers={200: bytes}, gives=PROMETHEUS)
async def read_metrics(call: Call[None]) -> Reply:
    """Get the meters of this server in the text format of Prometheus.

    While the store is away, what only the store knows is left out and `peeklock_store_up` is 0.
    """
    broker = call.broker
    try:
        queues = await asyncio.wait_for(_every_queue(broker), STORE_PATIENCE_SECONDS)
    except (StoreUnavailable, TimeoutError):
        queues = None
    snapshot = Snapshot(queues, broker.locks.state)
    return Reply(content=call.desk.metrics.render(snapshot), content_type=PROMETHEUS)


async def _every_queue(broker: Broker) -> list[Listed]:
    listed: list[Listed] = []
    while bite := await list_queues(broker, listed[-1].queue.name if listed else "", BITE):
        listed += bite
        if len(bite) < BITE:
            break
    return listed
