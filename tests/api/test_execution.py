"""Settlements and sends in one request take effect together, or not at all."""

import asyncio
from typing import Any

import httpx
import pytest

from app.domain.access import Right
from app.domain.state import MAX_METADATA_BYTES, MAX_VALUE_BYTES
from tests.api.api_server import ApiServer, pointers, problem
from tests.virtual_clock import run_ready_tasks

LOCK_SECONDS = 30


async def execute(api: ApiServer, settlements: Any = (), sends: Any = (), key: str | None = None) -> httpx.Response:
    """Settle and send in one request."""
    body = {"settlements": list(settlements), "sends": list(sends)}
    headers = {} if key is None else {"Idempotency-Key": key}
    return await api.request("POST", "/transactions/execute", body, headers=headers)


async def locked(api: ApiServer, *bodies: str, queue: str = "orders") -> list[Any]:
    """Send messages and receive them."""
    for body in bodies:
        await api.send(queue, body=body)
    return await api.receive(queue, max_messages=len(bodies))


def settlement(message: Any, action: str = "complete", queue: str = "orders", **fields: Any) -> dict[str, Any]:
    return {"queue": queue, "lock_token": message["lock_token"], "action": action, **fields}


async def bodies(api: ApiServer, queue: str) -> list[Any]:
    """Receive all messages of a queue."""
    return [message["body"] for message in await api.receive(queue, max_messages=100)]


@pytest.mark.behaviour("S0.2", "S1.11")
async def test_a_message_is_completed_with_the_messages_that_it_leads_to(api: ApiServer) -> None:
    (order,) = await locked(api, "order")
    answer = await execute(
        api, [settlement(order)], [{"queue": "invoices", "body": "invoice"}, {"queue": "letters", "body": "letter"}]
    )
    assert answer.status_code == 200
    assert answer.json()["settlements"] == [
        {"outcome": "completed", "sequence_number": order["sequence_number"], "replayed": False}
    ]
    assert [sent["state"] for sent in answer.json()["sends"]] == ["available", "available"]
    assert await api.counts("orders") == {}
    assert (await bodies(api, "invoices"), await bodies(api, "letters")) == (["invoice"], ["letter"])


async def test_each_action_ends_its_delivery_as_it_does_alone(api: ApiServer) -> None:
    first, second, third, fourth = await locked(api, "1", "2", "3", "4")
    settlements = [
        settlement(first),
        settlement(second, "abandon", delay_seconds=60, reason="later"),
        settlement(third, "dead_letter", reason="broken", properties={"by": "me"}),
        settlement(fourth, "defer"),
    ]
    answer = (await execute(api, settlements)).json()
    assert [(one["outcome"], one.get("state")) for one in answer["settlements"]] == [
        ("completed", None),
        ("abandoned", "scheduled"),
        ("dead_lettered", "dead_lettered"),
        ("deferred", "deferred"),
    ]
    assert await api.counts() == {"scheduled": 1, "dead_lettered": 1, "deferred": 1}


@pytest.mark.behaviour("S0.8")
async def test_a_delivery_that_has_ended_refuses_the_request(api: ApiServer) -> None:
    first, second = await locked(api, "1", "2")
    await api.settle(second, "abandon")
    answer = await execute(api, [settlement(first), settlement(second)], [{"queue": "invoices"}])
    problem(answer, 409, "already-settled")
    assert answer.json()["errors"][0]["pointer"] == "#/body/settlements/1"
    assert await api.counts() == {"locked": 1, "available": 1}
    assert await bodies(api, "invoices") == []


async def test_a_lock_that_has_expired_refuses_the_request(api: ApiServer) -> None:
    (message,) = await locked(api, "1")
    await api.clock.advance(LOCK_SECONDS + 1)
    answer = await execute(api, [settlement(message)], [{"queue": "orders", "body": "2"}])
    problem(answer, 410, "lock-lost")
    assert answer.json()["errors"][0]["pointer"] == "#/body/settlements/0"
    assert await api.counts() == {"available": 1}


async def test_a_renewed_lock_is_settled(api: ApiServer) -> None:
    first, second = await locked(api, "1", "2")
    await api.settle(first, "renew")
    answer = await execute(api, [settlement(first), settlement(second, "defer")])
    assert answer.status_code == 200, answer.text
    assert await api.counts() == {"deferred": 1}


async def test_a_repeat_without_an_idempotency_key_is_refused(api: ApiServer) -> None:
    (message,) = await locked(api, "1")
    sends = [{"queue": "invoices", "body": "once"}]
    await execute(api, [settlement(message)], sends)
    problem(await execute(api, [settlement(message)], sends), 409, "already-settled")
    assert await bodies(api, "invoices") == ["once"]


@pytest.mark.parametrize("action", ["complete", "abandon"])
async def test_a_repeat_with_an_idempotency_key_gets_the_first_answer(api: ApiServer, action: str) -> None:
    (message,) = await locked(api, "1")
    request = ([settlement(message, action)], [{"queue": "invoices", "body": "once"}], "key")
    first, repeat = await execute(api, *request), await execute(api, *request)
    assert first.status_code == repeat.status_code == 200
    assert repeat.json() == first.json()
    assert (first.headers.get("Idempotency-Replayed"), repeat.headers["Idempotency-Replayed"]) == (None, "true")
    assert await bodies(api, "invoices") == ["once"]


async def test_another_request_under_the_same_key_is_refused(api: ApiServer) -> None:
    await execute(api, sends=[{"queue": "orders", "body": 1}], key="key")
    answer = await execute(api, sends=[{"queue": "orders", "body": 2}], key="key")
    problem(answer, 422, "idempotency-key-reused")


async def test_a_full_queue_refuses_the_request(api: ApiServer) -> None:
    await api.request("PUT", "/queues/small", {"max_messages": 1})
    (message,) = await locked(api, "1")
    answer = await execute(api, [settlement(message)], [{"queue": "small"}, {"queue": "orders"}, {"queue": "small"}])
    problem(answer, 507, "queue-full")
    assert await api.counts() == {"locked": 1}


async def test_a_queue_that_was_deleted_and_made_again_gets_the_message(api: ApiServer) -> None:
    await api.send("invoices")
    await api.broker.store.queues.delete(await api.broker.queue_cache.by_name("invoices"))
    answer = await execute(api, sends=[{"queue": "invoices", "body": "new"}])
    assert answer.status_code == 200, answer.text
    assert await bodies(api, "invoices") == ["new"]


async def subscribed(api: ApiServer, *queues: str) -> None:
    """Make the topic `events` with a subscription for each of these queues, which has its name as filter."""
    await api.request_json("PUT", "/topics/events", {})
    for name in queues:
        await api.request_json("PUT", f"/queues/{name}", {})
        settings = {"target_queue": name, "filter": f"message.subject != 'not {name}'"}
        await api.request_json("PUT", f"/topics/events/subscriptions/{name}", settings)


async def publish(api: ApiServer, *publishes: Any, key: str | None = None, **others: Any) -> httpx.Response:
    """Publish to the topic `events` in one transaction with `others`."""
    body = {"publishes": [{"topic": "events", **message} for message in publishes], **others}
    headers = {} if key is None else {"Idempotency-Key": key}
    return await api.request("POST", "/transactions/execute", body, headers=headers)


@pytest.mark.behaviour("S1.11", "S1.83")
async def test_a_message_is_completed_together_with_publishes(api: ApiServer) -> None:
    await subscribed(api, "a", "b")
    (order,) = await locked(api, "order")
    answer = await publish(
        api,
        {"message_id": "both", "body": 1},
        {"message_id": "one", "body": 2, "subject": "not a"},
        settlements=[settlement(order)],
        sends=[{"queue": "b", "body": 0}],
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["publishes"] == [
        {"message_id": "both", "matched": 2, "duplicates": 0, "stored": True},
        {"message_id": "one", "matched": 1, "duplicates": 0, "stored": True},
    ]
    assert len(answer.json()["sends"]) == 1
    assert (await bodies(api, "a"), await bodies(api, "b")) == ([1], [0, 1, 2])
    assert await api.counts() == {}


async def test_a_publish_that_nothing_matches_takes_effect_with_the_others(api: ApiServer) -> None:
    await subscribed(api)
    (order,) = await locked(api, "order")
    answer = await publish(api, {"message_id": "lost"}, settlements=[settlement(order)])
    assert answer.json()["publishes"] == [{"message_id": "lost", "matched": 0, "duplicates": 0, "stored": False}]
    assert await api.counts() == {}


async def test_a_full_target_of_a_publish_refuses_the_request(api: ApiServer) -> None:
    await subscribed(api, "a", "b")
    await api.request_json("PUT", "/queues/b", {"max_messages": 1})
    (order,) = await locked(api, "order")
    answer = await publish(api, {"body": 1}, {"body": 2}, settlements=[settlement(order)])
    problem(answer, 507, "queue-full")
    assert await api.counts() == {"locked": 1}
    assert await bodies(api, "a") == []


async def test_a_repeat_of_publishes_without_ids_gets_the_first_answer(api: ApiServer) -> None:
    await subscribed(api, "a")
    request = ({"body": 1}, {"body": 2})
    first = await publish(api, *request, key="key")
    await subscribed(api, "a", "b")
    repeat = await publish(api, *request, key="key")
    assert repeat.json() == first.json()
    assert await bodies(api, "a") == [1, 2]
    assert await bodies(api, "b") == []


async def test_a_queue_behind_a_topic_that_was_made_again_gets_the_message(api: ApiServer) -> None:
    await subscribed(api, "a")
    await publish(api, {"body": 1})
    await api.request_json("DELETE", "/topics/events/subscriptions/a")
    await api.request_json("DELETE", "/queues/a")
    await subscribed(api, "a")
    assert (await publish(api, {"body": 2})).json()["publishes"][0]["stored"]
    assert await bodies(api, "a") == [2]


async def test_copies_of_publishes_are_bounded_together(api: ApiServer) -> None:
    await subscribed(api, *(f"q{number}" for number in range(9)))
    answer = await publish(api, *({"body": "x" * 200_000} for _ in range(10)))
    problem(answer, 413, "message-too-large")
    assert await bodies(api, "q0") == []


async def test_states_get_their_versions_together_with_the_rest(api: ApiServer) -> None:
    (order,) = await locked(api, "order")
    unit = {
        "settlements": [settlement(order)],
        "sends": [{"queue": "invoices", "body": "invoice"}],
        "states": [
            {"key": "stock", "if_version": 0, "value": {"left": 6}},
            {"key": "order.17", "if_version": 0, "value": {"paid": True}, "metadata": {"at": 1}},
        ],
    }
    executed = await api.request_json("POST", "/transactions/execute", unit, headers={"Idempotency-Key": "k"})
    assert executed["states"] == [{"key": "stock", "version": 1}, {"key": "order.17", "version": 1}]
    repeated = await api.request("POST", "/transactions/execute", unit, headers={"Idempotency-Key": "k"})
    assert (repeated.json(), repeated.headers["idempotency-replayed"]) == (executed, "true")
    state = await api.request_json("GET", "/states/order.17")
    assert (state["version"], state["value"], state["message_id"]) == (1, {"paid": True}, None)
    assert (await api.request_json("GET", "/states/stock"))["value"] == {"left": 6}
    assert await bodies(api, "invoices") == ["invoice"]


async def test_a_newer_version_of_one_state_refuses_the_request(api: ApiServer) -> None:
    (order,) = await locked(api, "order")
    states = [{"key": key, "if_version": 0, "value": key} for key in ("a", "b")]
    assert (await api.request("POST", "/transactions/execute", {"states": states[1:]})).status_code == 200
    refused = await api.request(
        "POST",
        "/transactions/execute",
        {"settlements": [settlement(order)], "sends": [{"queue": "invoices"}], "states": states},
    )
    assert problem(refused, 409, "version-conflict")["current_version"] == 1
    assert (await api.request_json("GET", "/states/a"))["version"] == 0
    assert await api.counts("orders") == {"locked": 1}
    assert await api.counts("invoices") == {}


async def test_states_of_a_request_are_bounded_and_have_different_keys(api: ApiServer) -> None:
    async def refused(*states: Any) -> list[str]:
        return pointers(await api.request("POST", "/transactions/execute", {"states": list(states)}))

    state = {"key": "a", "if_version": 0, "value": 1}
    assert await refused(state, {**state, "value": 2}) == ["/states/1/key"]
    assert await refused({**state, "value": "x" * MAX_VALUE_BYTES}) == ["/states/0/value"]
    assert await refused({**state, "metadata": "x" * MAX_METADATA_BYTES}) == ["/states/0/metadata"]
    assert await refused(*({**state, "key": f"k{number}"} for number in range(101))) == ["/states"]
    assert (await api.request_json("GET", "/states/a"))["version"] == 0


async def test_a_state_needs_the_right_to_listen_on_its_key(api_with_keys: ApiServer) -> None:
    api = api_with_keys
    key = {"Authorization": f"Bearer {await api.new_key(Right.LISTEN, patterns=('orders.*',))}"}

    async def change(name: str) -> httpx.Response:
        states = [{"key": name, "if_version": 0, "value": 1}]
        return await api.request("POST", "/transactions/execute", {"states": states}, headers=key)

    assert (await change("orders.1")).status_code == 200
    problem(await change("payroll"), 403, "forbidden")


async def test_publishing_needs_the_right_to_send_to_the_topic(api_with_keys: ApiServer) -> None:
    api = api_with_keys
    admin = {"Authorization": f"Bearer {await api.new_key(*Right)}"}
    await api.request("PUT", "/topics/events", {}, headers=admin)
    sender = {"Authorization": f"Bearer {await api.new_key(Right.SEND, patterns=('orders',), principal='sender')}"}
    body = {"publishes": [{"topic": "events"}]}
    assert (await api.request("POST", "/transactions/execute", body, headers=admin)).status_code == 200
    problem(await api.request("POST", "/transactions/execute", body, headers=sender), 403, "forbidden")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"sends": [{"queue": "orders"}] * 1001}, "/sends"),
        ({"sends": [{"body": 1}]}, "/sends/0/queue"),
        ({"sends": [{"queue": "not a name"}]}, "/sends/0/queue"),
        ({"sends": [{"queue": "orders"}, {"queue": "orders", "durability": "volatile"}]}, "/sends/1/durability"),
        ({"sends": [{"queue": "orders", "body": 1, "body_base64": "eA=="}]}, "/sends/0/body_base64"),
        ({"settlements": [{"queue": "orders", "lock_token": "1.2", "action": "renew"}]}, "/settlements/0/action"),
        ({"settlements": [{"lock_token": "1.2", "action": "complete"}]}, "/settlements/0/queue"),
        ({"renewals": []}, "/renewals"),
        ({"publishes": [{"topic": "events"}] * 101}, "/publishes"),
        ({"publishes": [{"topic": "events", "durability": "volatile"}]}, "/publishes/0/durability"),
        ({"publishes": [{"topic": "events", "message_id": "same"}] * 2}, "/publishes/1/message_id"),
    ],
)
async def test_a_malformed_request_is_refused_with_a_pointer(api: ApiServer, body: Any, pointer: str) -> None:
    await api.send()
    answer = await api.request("POST", "/transactions/execute", body)
    assert answer.status_code == 422
    assert pointers(answer) == [pointer]
    assert await api.counts() == {"available": 1}


async def test_two_settlements_of_one_lock_are_refused(api: ApiServer) -> None:
    (message,) = await locked(api, "1")
    answer = await execute(api, [settlement(message), settlement(message, "abandon")])
    assert pointers(answer) == ["/settlements/1/lock_token"]
    assert await api.counts() == {"locked": 1}


async def test_a_token_of_another_queue_is_refused(api: ApiServer) -> None:
    (message,) = await locked(api, "1")
    await api.send("other")
    for action in ("complete", "abandon"):
        answer = await execute(api, [settlement(message, action, queue="other")])
        problem(answer, 404, "message-not-found")
    assert await api.counts() == {"locked": 1}


async def test_a_key_needs_the_right_of_each_entry(api_with_keys: ApiServer) -> None:
    api = api_with_keys
    admin = {"Authorization": f"Bearer {await api.new_key(*Right)}"}
    sender = {"Authorization": f"Bearer {await api.new_key(Right.SEND, patterns=('in*',), principal='sender')}"}
    listener = {"Authorization": f"Bearer {await api.new_key(Right.LISTEN, principal='listener')}"}
    for queue in ("invoices", "orders"):
        await api.request("PUT", f"/queues/{queue}", {}, headers=admin)
    send = {"sends": [{"queue": "invoices"}]}
    settle = {"settlements": [{"queue": "orders", "lock_token": f"1.{'0' * 32}", "action": "complete"}]}
    for headers, body, status in (
        (sender, send, 200),
        (sender, {"sends": [{"queue": "invoices"}, {"queue": "orders"}]}, 403),
        (sender, send | settle, 403),
        (listener, settle, 404),
        (listener, send, 403),
        ({}, send, 401),
    ):
        answer = await api.request("POST", "/transactions/execute", body, headers=headers)
        assert answer.status_code == status, answer.text


async def test_the_first_entry_that_a_key_may_not_use_is_named(api_with_keys: ApiServer) -> None:
    headers = {"Authorization": f"Bearer {await api_with_keys.new_key(Right.SEND, patterns=('in*',))}"}
    queues = [f"orders.{number}" for number in (3, 1, 4, 0, 5, 9, 2, 6)]
    body = {"sends": [{"queue": queue} for queue in queues]}
    answer = await api_with_keys.request("POST", "/transactions/execute", body, headers=headers)
    assert "orders.3" in problem(answer, 403, "forbidden")["detail"]


async def test_a_receiver_that_waits_gets_the_message_that_a_request_sends(api: ApiServer) -> None:
    await api.request("PUT", "/queues/orders", {})
    waiting = asyncio.create_task(api.receive(wait_seconds=20))
    await run_ready_tasks()
    await execute(api, sends=[{"queue": "orders", "body": "sent"}])
    assert [message["body"] for message in await waiting] == ["sent"]
