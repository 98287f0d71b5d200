"""A topic with ten subscriptions: what a publish costs in sends."""

import json
from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.load import BODY, Connection, Target, expect_status
from benchmarks.measure import Cost, measure_alternating, ratio
from benchmarks.systems import call
from benchmarks.table import Row, at_most

SUBSCRIPTIONS = 10
TOPIC = "/v1/topics/published"
MESSAGE = json.dumps({"body": BODY, "properties": {"region": "eu"}}).encode()


def measure(bench: Bench) -> Iterator[Row]:
    """A publish to ten subscriptions whose filters match, against a send of the same message."""
    with bench.peeklock() as server:
        call(server, "PUT", "/v1/queues/bench", {})
        call(server, "PUT", TOPIC, {})
        for number in range(SUBSCRIPTIONS):
            condition = f"message.properties.region == 'eu' && message.priority > {number % 4}"
            call(server, "PUT", f"{TOPIC}/subscriptions/s{number}", {"filter": condition})
        for callers, units in ((64, 3000), (1, 1000)):
            loads = [(server, publish_one, bench.units(units)), (server, send_one, bench.units(units))]
            yield _against_send(callers, *measure_alternating(loads, callers, bench.rounds))


async def publish_one(connection: Connection, _target: Target) -> int:
    """Publish one message."""
    status, answer = await connection.call("POST", f"{TOPIC}/messages", MESSAGE)
    expect_status(status, 201, answer)
    return 1


async def send_one(connection: Connection, target: Target) -> int:
    """Send the same message to one queue."""
    status, answer = await connection.call("POST", target.path("messages"), MESSAGE)
    expect_status(status, 201, answer)
    return 1


def _against_send(callers: int, published: Cost, sent: Cost) -> Row:
    times = ratio(published, sent)
    return Row(
        f"publish to {SUBSCRIPTIONS} subscriptions",
        "one caller, all filters match" if callers == 1 else f"{callers} callers, all filters match",
        f"{published.median_cpu_ms:.2f} ms ({published.parts()}), {published.throughput:.0f}/s; {times:.2f}× a send",
        f"a send {sent.median_cpu_ms:.2f} ms",
        [at_most(3, "× a send", times)],
    )
