"""What contradicts a synchronous send is refused, and only a settlement of its own ends the message."""

from typing import Any

import pytest

from app.domain.synchronous_send import MAX_REPLY_BYTES, MAX_WAIT_SECONDS, MIN_WAIT_SECONDS
from tests.api.api_server import ApiServer, pointers, problem
from tests.api.synchronous_senders import sending


async def test_a_work_unit_does_not_settle_the_message(api: ApiServer) -> None:
    async with sending(api):
        (message,) = await api.receive()
        settlement = {"queue": "orders", "action": "complete", "lock_token": message["lock_token"]}
        response = await api.request("POST", "/transactions/execute", {"settlements": [settlement]})
        problem(response, 409, "synchronous-message")


async def test_an_open_transaction_neither_sends_nor_settles_the_message(api: ApiServer) -> None:
    transaction = {"transaction_id": (await api.request_json("POST", "/transactions", {}))["id"]}
    async with sending(api, **transaction) as sender:
        assert pointers(await sender.answer()) == ["/transaction_id"]
    async with sending(api):
        (message,) = await api.receive()
        problem(await api.settle(message, "complete", **transaction), 409, "synchronous-message")
        assert (await api.settle(message, "complete")).is_success


async def test_a_commit_with_a_state_does_not_settle_the_message(api: ApiServer) -> None:
    async with sending(api) as sender:
        (message,) = await api.receive()
        body = {"state": {"key": "total", "if_version": 0, "value": 1}, "sends": [{"queue": "letters"}]}
        path = f"/queues/orders/locks/{message['lock_token']}/commit"
        problem(await api.request("POST", path, body), 409, "synchronous-message")
        assert (await api.request_json("GET", "/states/total"))["version"] == 0
        assert await api.receive("letters") == []
        assert not sender.task.done()
        assert (await api.settle(message, "complete")).is_success


SYNCHRONOUS = {"delivery": "synchronous"}


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/queues/orders/messages/batch", {"messages": [SYNCHRONOUS]}, "/messages/0/delivery"),
        ("/transactions/execute", {"sends": [{"queue": "orders", **SYNCHRONOUS}]}, "/sends/0/delivery"),
        ("/topics/events/messages", SYNCHRONOUS, "/delivery"),
        ("/topics/events/messages/batch", {"messages": [SYNCHRONOUS]}, "/messages/0/delivery"),
    ],
)
async def test_other_sends_are_not_synchronous(api: ApiServer, path: str, body: Any, pointer: str) -> None:
    await api.request_json("PUT", "/queues/orders", {})
    await api.request_json("PUT", "/topics/events", {})
    await api.request_json("PUT", "/topics/events/subscriptions/all", {"target_queue": "orders"})
    assert pointers(await api.request("POST", path, body)) == [pointer]
    assert await api.counts() == {}


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"durability": "volatile"}, "/durability"),
        ({"delay_seconds": 1}, "/delay_seconds"),
        ({"available_at": "2030-01-01T00:00:00Z"}, "/available_at"),
        ({"ttl_seconds": 1}, "/ttl_seconds"),
        ({"wait_seconds": 0}, "/wait_seconds"),
        ({"wait_seconds": MIN_WAIT_SECONDS / 2}, "/wait_seconds"),
        ({"wait_seconds": MAX_WAIT_SECONDS + 1}, "/wait_seconds"),
        ({"delivery": "at once"}, "/delivery"),
        ({"delivery": "asynchronous"}, "/wait_seconds"),
    ],
)
async def test_what_contradicts_a_synchronous_send_is_refused(api: ApiServer, fields: Any, pointer: str) -> None:
    async with sending(api, **fields) as sender:
        assert pointers(await sender.answer()) == [pointer]


@pytest.mark.parametrize(
    "settings", [{"group_in_flight": 1}, {"duplicate_detection_window_seconds": 60}, {"history": True}]
)
async def test_a_queue_that_cannot_take_it_back_refuses_a_synchronous_send(api: ApiServer, settings: Any) -> None:
    await api.request_json("PUT", "/queues/orders", settings)
    async with sending(api) as sender:
        assert pointers(await sender.answer()) == ["/delivery"]
    assert await api.counts() == {}


async def test_a_synchronous_send_is_forwarded(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/last", {})
    await api.request_json("PUT", "/queues/orders", {"forward_to": "last"})
    async with sending(api) as sender:
        (message,) = await api.receive("last")
        await api.settle(message, "complete", "last", reply=1)
        assert (await sender.answer()).json()["reply"] == 1


async def test_a_full_queue_refuses_a_synchronous_send(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"max_messages": 1})
    async with sending(api), sending(api) as second:
        problem(await second.answer(), 507, "queue-full")


async def test_a_disabled_queue_refuses_a_synchronous_send(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"status": "send_disabled"})
    async with sending(api) as sender:
        problem(await sender.answer(), 403, "send-disabled")


async def test_a_reply_is_bounded(api: ApiServer) -> None:
    async with sending(api) as sender:
        (message,) = await api.receive()
        largest = "x" * (MAX_REPLY_BYTES - 2)
        problem(await api.settle(message, "complete", reply=largest + "x"), 413, "reply-too-large")
        assert not sender.task.done()
        await api.settle(message, "complete", reply=largest)
        assert (await sender.answer()).json()["reply"] == largest
