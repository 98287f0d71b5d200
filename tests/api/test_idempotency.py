"""An Idempotency-Key counts for one principal, verb, queue and day. A repeat wakes no receiver."""

from typing import Any

import pytest

from app.domain.access import Right
from tests.api.api_server import ApiServer, problem
from tests.api.topic_requests import subscribe
from tests.api.transaction_requests import commit, open_transaction, roll_back, shown

KEY = {"Idempotency-Key": "5f2b"}
SEND, RECEIVE = "/queues/orders/messages", "/queues/orders/messages/receive"
HOUR = 3600


async def test_a_key_counts_for_one_principal(api_with_keys: ApiServer) -> None:
    first, second = [
        {**KEY, "Authorization": f"Bearer {await api_with_keys.new_key(Right.SEND, principal=principal)}"}
        for principal in ("shop", "till")
    ]
    answers = [
        await api_with_keys.request("POST", SEND, {"body": 1}, headers=headers) for headers in (first, second, first)
    ]
    assert [answer.json()["sequence_number"] for answer in answers] == [1, 2, 1]
    assert ["idempotency-replayed" in answer.headers for answer in answers] == [False, False, True]
    other = await api_with_keys.request("POST", SEND, {"body": 2}, headers=first)
    problem(other, 422, "idempotency-key-reused")


async def test_a_key_counts_for_one_queue(api: ApiServer) -> None:
    for queue in ("orders", "returns"):
        for path in (f"/queues/{queue}/messages", f"/queues/{queue}/messages/batch"):
            body = {"messages": [{"body": 1}]} if path.endswith("batch") else {"body": 1}
            answer = await api.request("POST", path, body, headers={"Idempotency-Key": path.rpartition("/")[2]})
            assert (answer.status_code, "idempotency-replayed" in answer.headers) == (201, False)
        assert len((await api.request_json("GET", f"/queues/{queue}/messages"))["items"]) == 2
    first, second = [
        (await api.request("POST", f"/queues/{queue}/messages/receive", {}, headers=KEY)).json()["messages"]
        for queue in ("orders", "returns")
    ]
    assert first[0]["message_id"] != second[0]["message_id"]


async def test_a_key_counts_for_one_operation(api: ApiServer) -> None:
    await api.request_json("PUT", "/topics/orders", {})
    await subscribe(api, "all")
    sent = await api.request("POST", SEND, {"body": 1}, headers=KEY)
    published = await api.request("POST", "/topics/orders/messages", {"body": 1}, headers=KEY)
    assert (sent.status_code, published.json()["matched"]) == (201, 1)
    assert "idempotency-replayed" not in published.headers


RAW_HEADERS = {
    **KEY, "Content-Type": "text/plain", "Peeklock-Subject": "one",
    "ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "order",
}  # fmt: skip


@pytest.mark.parametrize("changed", ["Content-Type", "Peeklock-Subject", "ce-source"])
async def test_a_key_of_a_raw_send_counts_for_its_headers(api: ApiServer, changed: str) -> None:
    path = f"/v1{SEND}/raw"
    first = await api.http.post(path, content=b"x", headers=RAW_HEADERS)
    again = await api.http.post(path, content=b"x", headers=[*RAW_HEADERS.items()][::-1])
    assert (first.status_code, again.json()) == (201, first.json())
    other = await api.http.post(path, content=b"x", headers={**RAW_HEADERS, changed: "text/html"})
    problem(other, 422, "idempotency-key-reused")


async def test_a_key_of_another_principal_receives_other_messages(api_with_keys: ApiServer) -> None:
    every = [Right.SEND, Right.LISTEN]
    first, second = [
        {"Authorization": f"Bearer {await api_with_keys.new_key(*every, principal=principal)}"}
        for principal in ("shop", "till")
    ]
    for body in (1, 2):
        await api_with_keys.request_json("POST", SEND, {"body": body}, headers=first)
    taken = [
        (await api_with_keys.request_json("POST", RECEIVE, {}, headers={**KEY, **caller}))["messages"][0]["body"]
        for caller in (first, second, first)
    ]
    assert taken == [1, 2, 1]


@pytest.mark.parametrize("status", ["send_disabled", "disabled"])
@pytest.mark.parametrize(
    ("path", "body"), [(SEND, {"body": 1}), (f"{SEND}/batch", {"messages": [{"body": 1}]}), (f"{SEND}/raw", {})]
)
async def test_a_key_does_not_allow_sends_to_a_closed_queue(api: ApiServer, path: str, body: Any, status: str) -> None:
    await api.request_json("PUT", "/queues/orders", {"status": status})
    problem(await api.request("POST", path, body, headers=KEY), 403, "send-disabled")
    assert await api.counts() == {}
    await api.request_json("PUT", "/queues/orders", {})
    answer = await api.request("POST", path, body, headers=KEY)
    assert (answer.status_code, "idempotency-replayed" in answer.headers) == (201, False)


@pytest.mark.parametrize("status", ["receive_disabled", "disabled"])
async def test_a_key_does_not_allow_receives_from_a_closed_queue(api: ApiServer, status: str) -> None:
    await api.send(body=1)
    await api.request_json("PUT", "/queues/orders", {"status": status})
    problem(await api.request("POST", RECEIVE, {}, headers=KEY), 403, "receive-disabled")
    assert await api.counts() == {"available": 1}
    await api.request_json("PUT", "/queues/orders", {})
    answer = await api.request("POST", RECEIVE, {}, headers=KEY)
    assert [message["delivery_count"] for message in answer.json()["messages"]] == [1]


async def forget(api: ApiServer) -> None:
    """Remove expired attempts from the store."""
    while await api.broker.store.delete_expired(100):
        pass


async def test_a_key_is_remembered_for_a_day(api: ApiServer) -> None:
    first = await api.request("POST", SEND, {"body": 1}, headers=KEY)
    await api.advance_time(24 * HOUR - 1)
    await forget(api)
    again = await api.request("POST", SEND, {"body": 1}, headers=KEY)
    assert again.json() == first.json()
    await api.advance_time(2)
    await forget(api)
    later = await api.request("POST", SEND, {"body": 1}, headers=KEY)
    assert later.json()["sequence_number"] == 2


async def test_the_results_of_a_mixed_batch_are_in_the_order_of_its_settlements(api: ApiServer) -> None:
    for body in range(6):
        await api.send(body=body)
    tokens = [message["lock_token"] for message in await api.receive(max_messages=6)]
    asked = [
        {"action": "renew", "lock_token": tokens[0], "lock_seconds": 100},
        {"action": "complete", "lock_token": tokens[1]},
        {"action": "renew", "lock_token": tokens[2], "lock_seconds": 200},
        {"action": "dead_letter", "lock_token": tokens[3]},
        {"action": "abandon", "lock_token": tokens[4]},
        {"action": "renew", "lock_token": f"{tokens[5][:-1]}{'0' if tokens[5][-1] != '0' else '1'}"},
        {"action": "defer", "lock_token": tokens[5]},
    ]
    results = (await api.request_json("POST", "/queues/orders/settle", {"settlements": asked}))["results"]
    assert [result["lock_token"] for result in results] == [message["lock_token"] for message in asked]
    assert [result.get("lock_remaining_ms", result.get("outcome")) for result in results] == [
        100_000, "completed", 200_000, "dead_lettered", "abandoned", None, "deferred",
    ]  # fmt: skip
    assert [result.get("sequence_number") for result in results] == [None, 2, None, 4, 5, None, 6]
    assert results[5]["problem"]["code"] == "message-not-found"
    assert await api.counts() == {"available": 1, "locked": 2, "deferred": 1, "dead_lettered": 1}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (SEND, {"message_id": "m"}),
        (f"{SEND}/batch", {"messages": [{"message_id": "m"}, {"message_id": "m"}]}),
        (f"{SEND}/batch", {"messages": [{"message_id": "m"}], "atomic": False}),
    ],
)
@pytest.mark.parametrize("headers", [{}, KEY])
async def test_a_duplicate_wakes_no_receiver(api: ApiServer, path: str, body: Any, headers: dict[str, str]) -> None:
    await api.request_json("PUT", "/queues/orders", {"duplicate_detection_window_seconds": 60})
    queue = await api.broker.queue_cache.by_name("orders")
    if body.get("atomic") is False:
        headers = {}
    await api.send(message_id="m")
    with api.broker.wait_queue.waiter(queue.id) as waiter:
        answer = await api.request_json("POST", path, body, headers=headers)
        assert {result["duplicate"] for result in answer.get("results", [answer])} == {True}
        assert not await waiter.woken(0)
        await api.send(message_id="another")
        assert await waiter.woken(0)


async def test_a_repeat_wakes_no_receiver(api: ApiServer) -> None:
    await api.request("POST", SEND, {"body": 1}, headers=KEY)
    queue = await api.broker.queue_cache.by_name("orders")
    with api.broker.wait_queue.waiter(queue.id) as waiter:
        answer = await api.request("POST", SEND, {"body": 1}, headers=KEY)
        assert answer.headers["idempotency-replayed"] == "true"
        assert not await waiter.woken(0)


# ---- transactions ----------------------------------------------------------------------------------------------------

PUBLISH = "/topics/events/messages"


async def events(api: ApiServer) -> None:
    await api.request_json("PUT", "/topics/events", {})
    await subscribe(api, "all", "events")
    await subscribe(api, "urgent", "events", filter="message.priority > 5")


async def test_a_repeated_join_joins_once_and_gets_the_first_answer(api: ApiServer) -> None:
    await events(api)
    transaction = await open_transaction(api)
    joins: list[tuple[str, dict[str, Any]]] = [
        (SEND, {"body": 1}),
        (f"{SEND}/batch", {"messages": [{"body": 2}, {"body": 3}]}),
        (PUBLISH, {"priority": 9}),
        (f"{PUBLISH}/batch", {"messages": [{"priority": 9}, {"priority": 1}]}),
    ]
    for path, body in joins:
        first, again = [
            await api.request("POST", path, {**body, "transaction_id": transaction}, headers=KEY) for _ in range(2)
        ]
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.json() == first.json()
        assert ["idempotency-replayed" in answer.headers for answer in (first, again)] == [False, True]
    assert (await shown(api, transaction))["member_count"] == 1 + 2 + 2 + 3
    await commit(api, transaction)
    assert await api.counts() == {"available": 3}
    assert await api.counts("events.all") == {"available": 3}


@pytest.mark.parametrize("path", [f"{SEND}/raw", f"{PUBLISH}/raw"])
async def test_a_repeated_join_of_a_raw_body_joins_once(api: ApiServer, path: str) -> None:
    await events(api)
    first, second = await open_transaction(api), await open_transaction(api)
    headers = {**KEY, "Content-Type": "text/plain"}
    answers = [
        await api.request("POST", path, content=b"x", headers={**headers, "Peeklock-Transaction-Id": first})
        for _ in range(2)
    ]
    assert answers[0].json() == answers[1].json()
    assert (await shown(api, first))["member_count"] == 1
    for other in (headers, {**headers, "Peeklock-Transaction-Id": second}):
        response = await api.request("POST", path, content=b"x", headers=other)
        problem(response, 422, "idempotency-key-reused")
    assert (await shown(api, second))["member_count"] == 0


async def test_a_repeated_join_with_another_body_is_refused(api: ApiServer) -> None:
    await events(api)
    transaction, other = await open_transaction(api), await open_transaction(api)
    for path in (SEND, PUBLISH):
        await api.request_json("POST", path, {"body": 1, "transaction_id": transaction}, headers=KEY)
        for body in ({"body": 2, "transaction_id": transaction}, {"body": 1, "transaction_id": other}, {"body": 1}):
            problem(await api.request("POST", path, body, headers=KEY), 422, "idempotency-key-reused")
    assert (await shown(api, transaction))["member_count"] == 2
    assert (await shown(api, other))["member_count"] == 0


@pytest.mark.parametrize("end", [commit, roll_back])
async def test_a_join_is_answered_again_after_the_end_of_its_transaction(api: ApiServer, end: Any) -> None:
    await events(api)
    transaction = await open_transaction(api)
    body = {"body": 1, "transaction_id": transaction}
    answers = [await api.request_json("POST", path, body, headers=KEY) for path in (SEND, PUBLISH)]
    await end(api, transaction)
    await api.request_json("DELETE", "/topics/events")
    assert [await api.request_json("POST", path, body, headers=KEY) for path in (SEND, PUBLISH)] == answers
    problem(
        await api.request("POST", SEND, body), 409, "transaction-ended" if end is commit else "transaction-rolled-back"
    )


async def test_a_publish_that_matched_nothing_is_answered_again(api: ApiServer) -> None:
    await api.request_json("PUT", "/topics/events", {})
    transaction = await open_transaction(api)
    first = await api.request("POST", PUBLISH, {"transaction_id": transaction}, headers=KEY)
    assert (first.status_code, first.json()["matched"]) == (200, 0)
    await subscribe(api, "all", "events")
    again = await api.request("POST", PUBLISH, {"transaction_id": transaction}, headers=KEY)
    assert (again.status_code, again.json()) == (200, first.json())
    assert (await shown(api, transaction))["member_count"] == 0
