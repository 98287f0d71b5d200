"""Liveness, readiness and metrics of a server."""

import asyncio

from app.api.endpoints.health import STORE_TIMEOUT_SECONDS
from app.domain.refusals import StoreUnavailable
from app.http.queue_statistics import QueueStatistics
from tests.api.api_server import ApiServer, problem


async def test_a_running_server_is_alive(api: ApiServer) -> None:
    answer = await api.http.get("/livez")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


async def test_a_server_is_ready_while_its_store_answers(api: ApiServer) -> None:
    answer = await api.http.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "store": "ok", "lock_store": "none"})


async def test_the_document_says_what_each_state_of_the_lock_store_means(api: ApiServer) -> None:
    schemas = (await api.http.get("/openapi.json")).json()["components"]["schemas"]
    states = schemas["LockStoreState"]["enum"]
    assert states == ["ok", "degraded", "none"]
    assert all(f"`{state}`" in schemas["Readiness"]["properties"]["lock_store"]["description"] for state in states)


async def test_a_stopping_server_is_not_ready_but_alive(api: ApiServer) -> None:
    api.middleware.is_draining = True
    answer = await api.http.get("/readyz")
    problem(answer, 503, "shutting-down")
    assert (answer.headers["connection"], answer.headers["retry-after"]) == ("close", "1")
    assert (await api.http.get("/livez")).status_code == 200


async def test_a_server_is_not_ready_while_its_store_accepts_no_writes(api: ApiServer) -> None:
    async def check_writable() -> None:
        raise StoreUnavailable("The database accepts no writes at present.")

    answer = await api.with_store(check_writable=check_writable).http.get("/readyz")
    assert problem(answer, 503, "store-unavailable")["detail"] == "The database accepts no writes at present."


async def test_a_store_that_exceeds_the_timeout_is_unavailable(api: ApiServer) -> None:
    silent = api.with_store(check_writable=asyncio.Event().wait)
    answer = asyncio.create_task(silent.http.get("/readyz"))
    await api.clock.advance(STORE_TIMEOUT_SECONDS)
    problem(await answer, 503, "store-unavailable")


async def test_the_metrics_count_requests_by_operation_and_outcome(api: ApiServer) -> None:
    for _ in range(3):
        await api.send()
    await api.receive()
    await api.request("POST", f"/queues/orders/locks/9.{'0' * 32}/complete")
    answer = await api.http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    for line in (
        'peeklock_request_seconds_count{operation="send_message",outcome="ok"} 3.0',
        'peeklock_request_seconds_count{operation="complete_lock",outcome="message-not-found"} 1.0',
        'peeklock_request_seconds_bucket{le="+Inf",operation="receive_messages",outcome="ok"} 1.0',
        'peeklock_queue_messages{queue="orders",state="available"} 2.0',
        'peeklock_queue_messages{queue="orders",state="locked"} 1.0',
        'peeklock_lock_store{state="none"} 1.0',
        "peeklock_store_up 1.0",
        "peeklock_waiting_receivers 0.0",
    ):
        assert f"\n{line}\n" in answer.text


async def test_a_server_without_queues_has_metrics(api: ApiServer) -> None:
    answer = await api.http.get("/metrics")
    assert answer.status_code == 200
    assert {"peeklock_queues 0.0", "peeklock_oldest_seconds 0.0"} <= set(answer.text.splitlines())


async def test_the_age_of_the_oldest_message_is_shown(api: ApiServer) -> None:
    await api.send()
    await api.clock.advance(90)
    assert '\npeeklock_queue_oldest_seconds{queue="orders"} 90.0\n' in (await api.http.get("/metrics")).text


async def test_every_queue_is_counted(api: ApiServer) -> None:
    for n in range(5):
        await api.request_json("PUT", f"/queues/q{n}")
    broker = api.broker
    statistics = QueueStatistics(broker.store.queues, broker.lock_store, broker.counters, broker.clock, batch_size=2)
    listed = (await statistics.snapshot()).queues
    await statistics.close()
    assert listed is not None
    assert [item.queue.name for item in listed] == [f"q{n}" for n in range(5)]
