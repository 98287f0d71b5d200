"""What happens to messages in requests that change several of them together is counted once for each."""

from __future__ import annotations

from tests.api.api_server import ApiServer
from tests.brokers import CountingTally


async def events(api: ApiServer, queue: str) -> dict[str, int]:
    """Return what was counted for a queue."""
    counters = api.broker.counters
    assert isinstance(counters, CountingTally)
    queue_id = (await api.broker.queue_cache.by_name(queue)).id
    return {event: count for (counted, event), count in counters.messages.items() if counted == queue_id}


async def test_a_transaction_counts_at_its_commit(api: ApiServer) -> None:
    await api.send()
    (message,) = await api.receive()
    transaction = (await api.request_json("POST", "/transactions"))["id"]
    await api.send(transaction_id=transaction)
    await api.settle(message, "complete", transaction_id=transaction)
    before = await events(api, "orders")
    for _ in range(2):
        await api.request_json("POST", f"/transactions/{transaction}/commit")
    assert before == {"sent": 1, "delivered": 1}
    assert await events(api, "orders") == {"sent": 2, "delivered": 1, "completed": 1}


async def test_a_unit_of_work_counts_once_however_often_it_is_repeated(api: ApiServer) -> None:
    await api.send()
    (message,) = await api.receive()
    unit = {
        "sends": [{"queue": "bills"}],
        "settlements": [{"queue": "orders", "action": "complete", "lock_token": message["lock_token"]}],
    }
    for _ in range(2):
        await api.request_json("POST", "/transactions/execute", unit, headers={"Idempotency-Key": "once"})
    assert await events(api, "orders") == {"sent": 1, "delivered": 1, "completed": 1}
    assert await events(api, "bills") == {"sent": 1}


async def test_a_publish_counts_for_each_queue_that_it_reaches(api: ApiServer) -> None:
    await api.request_json("PUT", "/topics/news", {})
    for name in ("one", "two"):
        await api.request_json("PUT", f"/topics/news/subscriptions/{name}", {})
    for _ in range(2):
        await api.request_json("POST", "/topics/news/messages", {}, headers={"Idempotency-Key": "once"})
    assert await events(api, "news.one") == await events(api, "news.two") == {"sent": 1}
