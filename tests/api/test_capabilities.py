"""A server says what it offers: how safe its messages are, its limits and its versions."""

from typing import Any

import pytest

import app
from app.domain.refusals import StoreUnavailable
from app.domain.transaction import OPEN_TRANSACTIONS_PER_PRINCIPAL
from app.domain.weight import MAX_RESPONSE_BYTES
from app.store.revisions import revisions
from app.wire.capabilities import OPENAPI_VERSION
from tests.api.api_server import MAX_REQUEST_BYTES, MAX_WAIT, ApiServer, problem
from tests.api.transaction_requests import open_transaction, shown


async def capabilities(api: ApiServer) -> Any:
    return await api.request_json("GET", "/capabilities")


async def test_the_versions_are_those_of_the_server_its_document_and_its_tables(api: ApiServer) -> None:
    document = (await api.http.get("/openapi.json")).json()
    assert (await capabilities(api))["versions"] == {
        "server": app.__version__,
        "api": "v1",
        "openapi": document["openapi"],
        "schema": revisions()[-1],
    }
    assert document["openapi"] == OPENAPI_VERSION


@pytest.mark.behaviour("S1.7", "S1.18", "S1.61")
async def test_a_store_without_risks_is_durable(api: ApiServer) -> None:
    api = api.with_store(durability_risks=_answer([]))
    assert (await capabilities(api))["store"] == {
        "engine": "sqlite",
        "durable": True,
        "replicated": False,
        "accepts_durable_messages": True,
        "risks": [],
    }


@pytest.mark.behaviour("S1.7", "S1.18", "S1.61")
async def test_a_store_in_memory_is_not_durable(api: ApiServer) -> None:
    store = (await capabilities(api))["store"]
    assert (store["engine"], store["durable"]) == ("sqlite", False)
    assert "memory" in store["risks"][0]


async def test_a_store_that_does_not_answer_has_no_known_durability(api: ApiServer) -> None:
    async def fails() -> list[str]:
        raise StoreUnavailable("The database is gone.")

    problem(await api.with_store(durability_risks=fails).request("GET", "/capabilities"), 503, "store-unavailable")


async def test_a_single_process_shares_no_locks(api: ApiServer) -> None:
    assert (await capabilities(api))["lock_store"] == {"shared": False, "state": "none"}


@pytest.mark.behaviour("S1.9", "S1.21")
async def test_transactions_are_offered(api: ApiServer) -> None:
    assert (await capabilities(api))["transactions"] is True
    assert (await api.request("POST", "/transactions", {})).status_code == 201


async def test_the_limits_of_a_server_are_those_of_its_settings(api: ApiServer) -> None:
    limits = (await capabilities(api))["limits"]
    assert limits["max_request_bytes"] == MAX_REQUEST_BYTES
    assert limits["max_answer_bytes"] == MAX_RESPONSE_BYTES
    assert limits["max_wait_seconds"] == MAX_WAIT
    assert limits["max_queues"] is None
    assert limits["max_transactions_per_principal"] == OPEN_TRANSACTIONS_PER_PRINCIPAL


@pytest.mark.nightly
async def test_a_transaction_at_its_limit_of_members_takes_no_more(api: ApiServer) -> None:
    most = (await capabilities(api))["limits"]["max_transaction_members"]
    transaction = await open_transaction(api)
    path = "/queues/orders/messages/batch"
    for _ in range(most // 1000):
        await api.request_json("POST", path, {"messages": [{}] * 1000, "transaction_id": transaction})
    assert (await shown(api, transaction))["member_count"] == most
    refused = await api.request("POST", path, {"messages": [{}], "transaction_id": transaction})
    problem(refused, 409, "transaction-full")


@pytest.mark.parametrize(
    ("limit", "path", "body"),
    [
        ("max_batch_messages", "/queues/orders/messages/batch", lambda most: {"messages": [{}] * most}),
        ("max_batch_settlements", "/queues/orders/settle", lambda most: {"settlements": [SETTLEMENT] * most}),
        ("max_receive_messages", "/queues/orders/messages/receive", lambda most: {"max_messages": most}),
        ("max_lock_seconds", "/queues/orders/messages/receive", lambda most: {"lock_seconds": most}),
        ("max_delay_seconds", "/queues/orders/messages", lambda most: {"delay_seconds": most}),
        ("max_ttl_seconds", "/queues/orders/messages", lambda most: {"ttl_seconds": most}),
        ("max_priority", "/queues/orders/messages", lambda most: {"priority": most}),
        ("max_properties", "/queues/orders/messages", lambda most: {"properties": dict.fromkeys(_names(most), 1)}),
        ("max_filter_bytes", "/queues/orders/purge", lambda most: {"filter": "true".ljust(most)}),
        ("max_name_length", "/queues/orders/dead-letter/redrive", lambda most: {"to_queue": "o" * most}),
    ],
)
async def test_a_request_at_a_limit_is_accepted_and_above_it_refused(
    api: ApiServer, limit: str, path: str, body: Any
) -> None:
    await api.request_json("PUT", "/queues/orders")
    await api.request_json("PUT", f"/queues/{'o' * 128}")
    most = int((await capabilities(api))["limits"][limit])
    assert (await api.request("POST", path, body(most))).is_success
    problem(await api.request("POST", path, body(most + 1)), 422, "invalid-request")


async def test_a_queue_accepts_messages_up_to_the_limit(api: ApiServer) -> None:
    most = (await capabilities(api))["limits"]["max_message_bytes"]
    await api.request_json("PUT", "/queues/large", {"max_message_bytes": most})
    problem(await api.request("PUT", "/queues/large", {"max_message_bytes": most + 1}), 422, "invalid-request")


SETTLEMENT = {"action": "complete", "lock_token": f"1.{'0' * 32}"}


def _names(count: int) -> list[str]:
    return [f"name-{number}" for number in range(count)]


def _answer(value: Any) -> Any:
    async def answer() -> Any:
        return value

    return answer
