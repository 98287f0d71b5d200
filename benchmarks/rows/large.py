"""What is large: a topic with 1,000 subscriptions, and a transaction of 10,000 members."""

import json
from collections.abc import Iterator
from itertools import count

from benchmarks.bench import Bench
from benchmarks.load import BODY, Connection, Target, expect_status, send_one
from benchmarks.measure import measure_alternating, ratio
from benchmarks.systems import System, call
from benchmarks.table import Row

SUBSCRIPTIONS = 1000
TOPIC = "/v1/topics/large"
BATCH = 1000
MEMBERS = 10_000


def measure(bench: Bench) -> Iterator[Row]:
    """Publishes to all and to one of 1,000 subscriptions, and a transaction as large as one may be."""
    with bench.peeklock() as server:
        call(server, "PUT", "/v1/queues/bench", {})
        call(server, "PUT", TOPIC, {})
        for number in range(SUBSCRIPTIONS):
            condition = f"message.properties.number == {number} || message.properties.all"
            # One has a queue that exists, so that the default limit of 1,000 queues is not passed.
            target = {"target_queue": "bench"} if number == 0 else {}
            call(server, "PUT", f"{TOPIC}/subscriptions/s{number}", {"filter": condition} | target)
        yield _publish_to_all(bench, server)
        yield _publish_to_one(bench, server)
    with bench.peeklock() as server:
        call(server, "PUT", "/v1/queues/bench", {})
        yield _transaction(bench, server)


def _publish_to_all(bench: Bench, server: System) -> Row:
    loads = [(server, _publish_all, bench.units(100)), (server, _send_batch, bench.units(100))]
    published, sent = measure_alternating(loads, 1, bench.rounds)
    return Row(
        f"publish to {SUBSCRIPTIONS:,} subscriptions",
        "one caller, all filters match",
        f"{published.median_cpu_ms:.3f} ms a stored message ({published.parts()}); {ratio(published, sent):.2f}× a send",
        f"a send in a batch of {BATCH:,}: {sent.median_cpu_ms:.3f} ms",
        [],
    )


def _publish_to_one(bench: Bench, server: System) -> Row:
    loads = [(server, PublishToOne(), bench.units(500)), (server, send_one, bench.units(500))]
    published, sent = measure_alternating(loads, 1, bench.rounds)
    return Row(
        f"publish to {SUBSCRIPTIONS:,} subscriptions",
        "one caller, one filter matches",
        f"{published.median_cpu_ms:.2f} ms ({published.parts()}); {ratio(published, sent):.2f}× a send",
        f"a send {sent.median_cpu_ms:.2f} ms",
        [],
    )


def _transaction(bench: Bench, server: System) -> Row:
    loads = [(server, work_unit, bench.units(20) // 10) for work_unit in (_in_one_transaction, _in_batches)]
    together, apart = measure_alternating(loads, 1, bench.rounds)
    return Row(
        f"transaction of {MEMBERS:,} members",
        f"one caller, half completions and half sends, {BATCH:,} in a request",
        f"{together.median_cpu_ms:.3f} ms a member ({together.parts()}); {ratio(together, apart):.2f}× batches",
        f"batches of the same size without a transaction {apart.median_cpu_ms:.3f} ms ({apart.parts()})",
        [],
    )


async def _publish_all(connection: Connection, _target: Target) -> int:
    body = json.dumps({"body": BODY, "properties": {"number": -1, "all": True}}).encode()
    status, answer = await connection.call("POST", f"{TOPIC}/messages", body)
    expect_status(status, 201, answer)
    return SUBSCRIPTIONS


class PublishToOne:
    """A message for one subscription, each in turn."""

    def __init__(self) -> None:
        self._numbers = count()

    async def __call__(self, connection: Connection, _target: Target) -> int:
        """Publish a message that one filter takes."""
        number = next(self._numbers) % SUBSCRIPTIONS
        body = json.dumps({"body": BODY, "properties": {"number": number, "all": False}}).encode()
        status, answer = await connection.call("POST", f"{TOPIC}/messages", body)
        expect_status(status, 201, answer)
        return 1


async def _send_batch(connection: Connection, target: Target, transaction_id: str | None = None) -> int:
    request = {"messages": [{"body": BODY}] * BATCH, "transaction_id": transaction_id}
    status, answer = await connection.call("POST", target.path("messages/batch"), json.dumps(request).encode())
    expect_status(status, 201, answer)
    return BATCH


async def _in_batches(connection: Connection, target: Target) -> int:
    return await _handle(connection, target, None)


async def _in_one_transaction(connection: Connection, target: Target) -> int:
    status, answer = await connection.call("POST", "/v1/transactions", b'{"timeout_seconds": 600}')
    expect_status(status, 201, answer)
    transaction_id = json.loads(answer)["id"]
    done = await _handle(connection, target, transaction_id)
    status, answer = await connection.call("POST", f"/v1/transactions/{transaction_id}/commit")
    expect_status(status, 200, answer)
    return done


async def _handle(connection: Connection, target: Target, transaction_id: str | None) -> int:
    """Store messages, receive them, complete them and send as many. The first two are outside of the transaction."""
    for _ in range(MEMBERS // 2 // BATCH):
        await _send_batch(connection, target)
        tokens = await _receive(connection, target)
        settlements = [{"action": "complete", "lock_token": token} for token in tokens]
        request = {"settlements": settlements, "transaction_id": transaction_id}
        status, answer = await connection.call("POST", target.path("settle"), json.dumps(request).encode())
        expect_status(status, 200, answer)
        await _send_batch(connection, target, transaction_id)
    return MEMBERS


async def _receive(connection: Connection, target: Target) -> list[str]:
    wanted = {"max_messages": BATCH, "lock_seconds": 3600}
    status, answer = await connection.call("POST", target.path("messages/receive"), json.dumps(wanted).encode())
    expect_status(status, 200, answer)
    return [message["lock_token"] for message in json.loads(answer)["messages"]]
