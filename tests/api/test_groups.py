"""Groups over HTTP: the state `blocked`, and receives from one group."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.broker.administration.purge import purge
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import MatchAll
from app.domain.message import MessageState
from tests.api.api_server import ApiServer
from tests.brokers import ChangedStore


@pytest.fixture(autouse=True)
async def fifo(api: ApiServer) -> None:
    """The queue `orders` has one message of a group in flight."""
    await api.request_json("PUT", "/queues/orders", {"group_in_flight": 1})


async def receive(api: ApiServer, **fields: Any) -> list[str]:
    """Return the ids of the messages that a receive of many gets."""
    answer = await api.request_json("POST", "/queues/orders/messages/receive", {"max_messages": 10, **fields})
    return [message["message_id"] for message in answer["messages"]]


async def test_a_sender_learns_whether_its_message_is_blocked(api: ApiServer) -> None:
    messages = [{"message_id": "a1", "group_id": "a"}, {"message_id": "a2", "group_id": "a"}, {"message_id": "free"}]
    answer = await api.request_json("POST", "/queues/orders/messages/batch", {"messages": messages})
    assert [result["state"] for result in answer["results"]] == ["available", "blocked", "available"]
    assert await api.counts() == {"available": 2, "blocked": 1}
    assert await receive(api) == ["a1", "free"]


@pytest.mark.parametrize("verb", ["complete", "dead-letter", "defer"])
async def test_a_settlement_lets_the_next_message_follow(api: ApiServer, verb: str) -> None:
    for message_id in ("a1", "a2"):
        await api.send(message_id=message_id, group_id="a")
    (first,) = await api.receive()
    await api.settle(first, verb)
    assert await receive(api) == ["a2"]


async def test_an_abandoned_message_comes_first_again(api: ApiServer) -> None:
    for message_id in ("a1", "a2"):
        await api.send(message_id=message_id, group_id="a")
    (first,) = await api.receive()
    await api.settle(first, "abandon")
    assert await receive(api) == ["a1"]


async def test_receive_and_delete_lets_the_next_message_follow(api: ApiServer) -> None:
    for message_id in ("a1", "a2"):
        await api.send(message_id=message_id, group_id="a")
    assert await receive(api, mode="receive_and_delete") == ["a1"]
    assert await receive(api, mode="receive_and_delete") == ["a2"]


async def test_a_waiting_receiver_gets_the_next_message(api: ApiServer) -> None:
    for message_id in ("a1", "a2"):
        await api.send(message_id=message_id, group_id="a")
    (first,) = await api.receive()
    waiting = asyncio.ensure_future(receive(api, wait_seconds=20))
    await asyncio.sleep(0)
    await api.settle(first, "complete")
    assert await waiting == ["a2"]


async def test_a_receive_takes_from_one_group(api: ApiServer) -> None:
    for group in ("a", "b", "c"):
        await api.send(message_id=group, group_id=group)
    assert await receive(api, group_id="b") == ["b"]
    assert await receive(api, group_id="b") == []
    assert await receive(api) == ["a", "c"]


async def test_a_receive_waits_for_its_group(api: ApiServer) -> None:
    waiting = asyncio.ensure_future(receive(api, group_id="b", wait_seconds=20))
    await asyncio.sleep(0)
    await api.send(message_id="a", group_id="a")
    await api.send(message_id="b", group_id="b")
    assert await waiting == ["b"]
    assert await receive(api) == ["a"]


@pytest.mark.parametrize(
    "fields",
    [{"filter": "message.priority > 1"}, {"sequence_numbers": [1]}, {"source": "dead_letter"}],
    ids=["filter", "numbers", "dead letters"],
)
async def test_a_group_is_refused_with_another_choice_of_messages(api: ApiServer, fields: dict[str, Any]) -> None:
    answer = await api.request("POST", "/queues/orders/messages/receive", {"group_id": "a", **fields})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/body/group_id")


async def test_a_group_is_refused_in_a_queue_without_groups(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {})
    answer = await api.request("POST", "/queues/orders/messages/receive", {"group_id": "a"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/body/group_id")


async def test_an_idempotency_key_is_refused_with_a_group(api: ApiServer) -> None:
    answer = await api.request(
        "POST", "/queues/orders/messages/receive", {"group_id": "a"}, headers={"Idempotency-Key": "k"}
    )
    assert answer.status_code == 422


@pytest.mark.parametrize("limit", [0, 1001, 1.5, "1"])
async def test_a_limit_out_of_range_is_refused(api: ApiServer, limit: Any) -> None:
    answer = await api.request("PATCH", "/queues/orders", {"group_in_flight": limit})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/body/group_in_flight")
    assert (await api.request_json("GET", "/queues/orders"))["group_in_flight"] == 1


async def test_a_group_with_a_blank_at_its_end_is_refused(api: ApiServer) -> None:
    answer = await api.request("POST", "/queues/orders/messages", {"group_id": "a "})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/body/group_id")
    await api.request_json("PUT", "/queues/plain")
    assert (await api.request("POST", "/queues/plain/messages", {"group_id": "a "})).status_code == 201


async def test_a_purge_removes_messages_that_follow_while_it_reads(api: ApiServer) -> None:
    for message_id in ("a1", "a2"):
        await api.send(message_id=message_id, group_id="a")
    (first,) = await api.receive()
    store = api.broker.store

    async def read_then_complete(*arguments: Any) -> Any:
        found = await store.browse_metadata(*arguments)
        if await api.counts() == {"locked": 1, "blocked": 1}:
            await api.settle(first, "complete")
        return found

    purging = replace(api.broker.administration, store=ChangedStore(store, browse_metadata=read_then_complete))
    selection = MessageSelection([MessageState.AVAILABLE, MessageState.BLOCKED], MatchAll())
    queue = await api.broker.queue_cache.by_name("orders")
    assert await purge(purging, queue, selection) == 1


async def test_a_purge_removes_blocked_messages_too(api: ApiServer) -> None:
    for message_id in ("a1", "a2", "a3"):
        await api.send(message_id=message_id, group_id="a")
    assert await api.request_json("POST", "/queues/orders/purge", {"states": ["blocked"]}) == {"removed": 2}
    assert await api.request_json("POST", "/queues/orders/purge", {}) == {"removed": 1}
    assert await api.counts() == {}
