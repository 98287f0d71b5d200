"""The console of one of two real servers shows what happens at both, and which of them run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.main.conftest import LONG_REDIS_TIMEOUT, Serve


@contextmanager
def live_events(url: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of an open overview. The next comes with the next sample."""
    with httpx.stream("GET", f"{url}/console/live", timeout=60) as stream:
        yield (json.loads(line.removeprefix("data: ")) for line in stream.iter_lines() if line.startswith("data: {"))


def hosts(event: dict[str, Any]) -> int:
    """The number of servers in an event."""
    return len(event["servers"]["rows"])


def sent(event: dict[str, Any]) -> int:
    """The number of messages in the small plots of an event."""
    return sum(int(points) for cells in event["rows"].values() for points in cells[3].split(","))


def test_an_overview_has_the_events_of_every_server_that_runs(serve: Serve, postgres_url: str, redis_url: str) -> None:
    shared = {"database_url": postgres_url, "redis_url": redis_url, "auto_create_queues": 1, **LONG_REDIS_TIMEOUT}
    one, other = serve(**shared), serve(**shared, console="false")
    with live_events(one.url) as events:
        next(event for event in events if hosts(event) == 2)
        for server in (one, other):
            httpx.post(f"{server.url}/v1/queues/orders/messages", json={"body": 1}).raise_for_status()
        next(event for event in events if sent(event) == 2)
        other.terminate()
        other.wait()
        # At most one sample was taken before the other had left.
        assert 1 in [hosts(next(events)) for _ in range(2)]
