"""Receivers that wait: a long poll, and the moment at which all of them wait in the server."""

import asyncio
import json
import time

from benchmarks.load import Connection, Target
from benchmarks.systems import System, metric

LONG_POLL = b'{"wait_seconds": 50}'
POLL_SECONDS = 0.01

LAST_POLL_SECONDS = 0.02
"""A receiver counts as waiting just before its last poll of the queue. After this pause that poll has ended."""


async def receive_waiting(connection: Connection, target: Target) -> tuple[float, str | None]:
    """Wait for one message. Return the time of the response, and the token if it has a message."""
    status, answer = await connection.call("POST", target.path("messages/receive"), LONG_POLL)
    received_at = time.monotonic()
    if status != 200:
        raise RuntimeError(f"a receive was answered {status}: {answer!r}")
    messages = json.loads(answer)["messages"]
    return received_at, messages[0]["lock_token"] if messages else None


async def until_waiting(system: System, receivers: int) -> None:
    """Return once `receivers` receivers wait on this server and have found nothing."""
    await asyncio.sleep(0)  # let woken receivers send their next request
    while await asyncio.to_thread(metric, system, "peeklock_waiting_receivers") < receivers:
        await asyncio.sleep(POLL_SECONDS)
    await asyncio.sleep(LAST_POLL_SECONDS)
