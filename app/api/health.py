"""What those who watch a server ask: does it live, does it take work, what has it done?"""

import asyncio
from dataclasses import replace
from hmac import compare_digest

from app.api.desk import Call
from app.api.guard import Guard, bearer
from app.api.open_access import OpenAccess
from app.api.operation import PROMETHEUS, Reply, operation
from app.domain.access import Right
from app.domain.refusals import Forbidden, ShuttingDown, StoreUnavailable, Unauthenticated
from app.wire.health import Liveness, Readiness

STORE_PATIENCE_SECONDS = 1.0
"""A store that takes longer to tell the time is of no use to anybody who waits for a message."""


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


@operation("GET", "/metrics", right=None, tag="health", answers={200: bytes}, refusals=(401,), gives=PROMETHEUS)
async def read_metrics(call: Call[None]) -> Reply:
    """Get the meters of this server in the text format of Prometheus.

    Queues are named only for the metrics key or an API key with the right to browse every queue, or where the server
    asks for no keys; all others get totals. While the store is away, what only the store knows is left out and
    `peeklock_store_up` is 0. While it is slow, `peeklock_store_slow` is 1 and the last known figures are given.
    """
    is_named = call.desk.names_queues and await _may_see_names(call)
    snapshot = replace(await call.desk.figures.snapshot(), is_named=is_named)
    return Reply(content=call.desk.metrics.render(snapshot), content_type=PROMETHEUS)


async def _may_see_names(call: Call[None]) -> bool:
    """Whether the caller may. Refuses with `Unauthenticated` a key that is none."""
    given, expected = bearer(call.headers), call.desk.metrics_key
    if given is not None and expected is not None and compare_digest(given.encode(), expected.encode()):
        return True
    try:
        await _guard_of_names(call).admit(None, call.headers)
    except Unauthenticated:
        if given is not None:
            raise
        return False
    except (Forbidden, StoreUnavailable):
        return False
    return True


def _guard_of_names(call: Call[None]) -> Guard:
    access = OpenAccess(only_local=call.desk.is_loopback, takes_json=False, needs_header=False)
    return Guard(call.desk.doorkeeper, Right.BROWSE, access)
