"""A queue with a default delay: each send without a delay of its own waits, and nothing else does."""

from typing import Any

import pytest

from app.broker.queue_cache import CACHE_SECONDS
from app.broker.sending.send import send
from app.domain.message import Envelope
from app.domain.sending import NewMessage
from tests.api.api_server import ApiServer, pointers
from tests.api.synchronous_senders import sending
from tests.api.topic_requests import publish, subscribe
from tests.api.transaction_requests import commit, open_transaction
from tests.brokers import build_broker

DELAY = 60


@pytest.fixture(autouse=True)
async def orders(api: ApiServer) -> None:
    """The queue with a default delay."""
    await api.request_json("PUT", "/queues/orders", {"default_delay_seconds": DELAY})


async def send_each_way(api: ApiServer, queue: str, **fields: Any) -> int:
    """Send a message to a queue in each way that needs no other queue; return how many."""
    path, header = f"/queues/{queue}/messages", {f"Peeklock-{_header(name)}": str(fields[name]) for name in fields}
    await api.send(queue, **fields)
    await api.send(queue, durability="volatile", **fields)
    await api.broker.volatile_buffer.close()
    for is_atomic in (True, False):
        await api.request_json("POST", f"{path}/batch", {"messages": [fields], "atomic": is_atomic})
    await api.request("POST", f"{path}/raw", content=b"raw", headers={"content-type": "text/plain", **header})
    await api.request_json("POST", "/transactions/execute", {"sends": [{"queue": queue, **fields}]})
    transaction = await open_transaction(api)
    await api.request_json("POST", path, {**fields, "transaction_id": transaction})
    await commit(api, transaction)
    return 7


def _header(name: str) -> str:
    return name.replace("_", "-").title()


async def test_every_kind_of_send_waits(api: ApiServer) -> None:
    sent = await send_each_way(api, "orders")
    assert await api.counts() == {"scheduled": sent}
    await api.advance_time(DELAY - 1)
    assert await api.counts() == {"scheduled": sent}
    await api.advance_time(1)
    assert await api.counts() == {"available": sent}


@pytest.mark.parametrize("own", [{"delay_seconds": 0}, {"available_at": "2020-01-01T00:00:00Z"}])
async def test_an_explicit_delay_of_zero_and_a_past_due_time_are_due_now(api: ApiServer, own: dict[str, Any]) -> None:
    sent = await send_each_way(api, "orders", **own)
    assert await api.counts() == {"available": sent}


async def test_a_longer_and_a_shorter_delay_of_a_message_win(api: ApiServer) -> None:
    for seconds in (DELAY - 1, DELAY + 1):
        await api.send(delay_seconds=seconds)
    await api.advance_time(DELAY - 1)
    assert await api.counts() == {"available": 1, "scheduled": 1}
    await api.advance_time(1)
    assert await api.counts() == {"available": 1, "scheduled": 1}
    await api.advance_time(1)
    assert await api.counts() == {"available": 2}


async def test_null_means_that_a_message_has_no_delay_of_its_own(api: ApiServer) -> None:
    assert (await api.send(delay_seconds=None, available_at=None))["state"] == "scheduled"


async def test_the_time_to_live_counts_from_the_due_time(api: ApiServer) -> None:
    await api.send(ttl_seconds=10)
    await api.advance_time(DELAY + 9)
    assert await api.counts() == {"available": 1}
    await api.advance_time(1)
    assert await api.counts() == {}


async def test_the_queue_that_stores_a_forwarded_message_gives_its_delay(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/plain", {})
    await api.request_json("PUT", "/queues/to-plain", {"forward_to": "plain", "default_delay_seconds": DELAY})
    await api.request_json("PUT", "/queues/to-orders", {"forward_to": "orders"})
    assert (await api.send("to-plain"))["state"] == "available"
    assert (await api.send("to-orders"))["state"] == "scheduled"


async def test_each_copy_of_a_publish_has_the_delay_of_its_queue(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/soon", {"default_delay_seconds": 1})
    await api.request_json("PUT", "/queues/now", {})
    await api.request_json("PUT", "/topics/orders", {})
    for queue in ("orders", "soon", "now"):
        await subscribe(api, queue, target_queue=queue)
    # A body of this size is stored once for all queues.
    await publish(api, body="x" * (64 << 10))
    assert [await api.counts(queue) for queue in ("orders", "soon", "now")] == [
        {"scheduled": 1},
        {"scheduled": 1},
        {"available": 1},
    ]
    await api.advance_time(1)
    assert [await api.counts(queue) for queue in ("orders", "soon")] == [{"scheduled": 1}, {"available": 1}]
    await publish(api, delay_seconds=0)
    assert await api.counts("orders") == {"scheduled": 1, "available": 1}


async def test_a_synchronous_send_is_delivered_at_once(api: ApiServer) -> None:
    async with sending(api) as sender:
        (message,) = await api.receive()
        await api.settle(message, "complete")
        assert (await sender.answer()).status_code == 200
    delayed = {"delivery": "synchronous", "delay_seconds": 1}
    assert pointers(await api.request("POST", "/queues/orders/messages", delayed)) == ["/delay_seconds"]


async def test_what_returns_to_a_queue_does_not_wait(api: ApiServer) -> None:
    await api.send(delay_seconds=0)
    (message,) = await api.receive()
    await api.settle(message, "abandon")
    (message,) = await api.receive()
    await api.settle(message, "dead-letter")
    await api.request_json("POST", "/queues/orders/dead-letter/redrive", {})
    assert await api.counts() == {"available": 1}
    await api.request_json("POST", "/queues/orders/purge", {})
    await api.request_json("POST", "/queues/orders/restore", {})
    assert await api.counts() == {"available": 1}


async def test_a_change_of_the_setting_leaves_messages_that_were_sent(api: ApiServer) -> None:
    await api.send()
    await api.request_json("PATCH", "/queues/orders", {"default_delay_seconds": None})
    await api.send()
    assert await api.counts() == {"scheduled": 1, "available": 1}
    await api.advance_time(DELAY)
    assert await api.counts() == {"available": 2}


async def test_a_message_keeps_the_delay_that_it_had_when_it_joined_a_transaction(api: ApiServer) -> None:
    transaction = await open_transaction(api)
    await api.request_json("POST", "/queues/orders/messages", {"transaction_id": transaction})
    await api.request_json("PATCH", "/queues/orders", {"default_delay_seconds": None})
    await commit(api, transaction)
    assert await api.counts() == {"scheduled": 1}
    await api.advance_time(DELAY)
    assert await api.counts() == {"available": 1}


async def test_a_server_that_missed_a_change_applies_it_after_the_time_of_its_cache(api: ApiServer) -> None:
    other = build_broker(api.broker.store, api.clock)
    for is_changed in (False, True):
        if is_changed:
            await api.request_json("PATCH", "/queues/orders", {"default_delay_seconds": None})
        await send(other.sending, "orders", [NewMessage(Envelope(""))])
    assert await api.counts() == {"scheduled": 2}
    await api.clock.advance(CACHE_SECONDS + 0.001)
    await send(other.sending, "orders", [NewMessage(Envelope(""))])
    assert await api.counts() == {"scheduled": 2, "available": 1}
    await other.queue_cache.close()
