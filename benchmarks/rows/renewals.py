"""The share of renewals at half the lock duration that need no SQL."""

import asyncio
import json
from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.load import send_one
from benchmarks.systems import System, call, metric
from benchmarks.table import Row, at_least

DURATION_SECONDS = 2
LOCKS = 20
RENEWALS = 24


def measure(bench: Bench) -> Iterator[Row]:
    """The server's count of renewals without SQL, against all renewals."""
    with bench.peeklock() as ours:
        call(ours, "PUT", "/v1/queues/long", {"lock_duration_seconds": DURATION_SECONDS})
        asyncio.run(_renew(ours.with_queue("long")))
        done = LOCKS * RENEWALS
        share = metric(ours, 'peeklock_events_total{event="renewals_without_sql"}') * 100 / done
        yield Row(
            "renewals",
            f"at half the lock duration, {LOCKS} locks renewed {RENEWALS} times",
            f"{share:.0f} % of {done} without SQL",
            "itself",
            [at_least(80, " %", share)],
        )


async def _renew(ours: System) -> None:
    target = ours.target
    connection = await target.connect()
    for _ in range(LOCKS):
        await send_one(connection, target)
    _, answer = await connection.call("POST", target.path("messages/receive"), b'{"max_messages": 100}')
    tokens = [message["lock_token"] for message in json.loads(answer)["messages"]]
    if len(tokens) != LOCKS:
        raise RuntimeError(f"{len(tokens)} messages were received instead of {LOCKS}")
    for _ in range(RENEWALS):
        await asyncio.sleep(DURATION_SECONDS / 2)
        for token in tokens:
            status, answer = await connection.call("POST", target.path(f"locks/{token}/renew"))
            if status != 200:
                raise RuntimeError(f"a renewal was answered {status}: {answer!r}")
    connection.close()
