"""Open transactions over HTTP: members wait, and take effect together."""

import asyncio
from typing import Any

import httpx
import pytest

from app.domain.access import Right
from app.domain.transaction import OPEN_TRANSACTIONS_PER_PRINCIPAL
from app.maintenance.expiry import roll_back_overdue
from tests.api.api_server import ApiServer, pointers, problem
from tests.api.topic_requests import publish, subscribe
from tests.api.transaction_requests import commit, locked, open_transaction, roll_back, shown


async def test_a_transaction_opens_for_a_minute_unless_another_time_is_given(api: ApiServer) -> None:
    opened = await api.request_json("POST", "/transactions", {})
    assert opened["state"] == "open"
    await api.advance_time(59)
    assert (await commit(api, opened["id"])).status_code == 200
    for seconds, expected in ((600, 201), (1, 201), (601, 422), (0.5, 422)):
        response = await api.request("POST", "/transactions", {"timeout_seconds": seconds})
        assert response.status_code == expected


async def test_a_body_is_not_needed_to_open_and_to_commit(api: ApiServer) -> None:
    opened = await api.request_json("POST", "/transactions")
    assert (await api.request("POST", f"/transactions/{opened['id']}/commit")).status_code == 200


@pytest.mark.behaviour("S0.2", "S1.10", "S1.24", "S1.25", "S1.28", "S1.29")
async def test_members_take_effect_at_the_commit(api: ApiServer) -> None:
    message = await locked(api)
    transaction = await open_transaction(api)
    sent = await api.send("results", body="result", message_id="r", transaction_id=transaction)
    assert sent == {
        "sequence_number": None, "message_id": "r", "enqueued_at": None, "state": "uncommitted", "duplicate": False,
    }  # fmt: skip
    settled = (await api.settle(message, "complete", transaction_id=transaction)).json()
    assert settled == {
        "outcome": "completed",
        "sequence_number": message["sequence_number"],
        "replayed": False,
        "pending": True,
    }
    assert await api.counts() == {"locked": 1}
    assert await api.receive("results") == []
    committed = (await commit(api, transaction)).json()
    assert committed["state"] == "committed"
    assert [one["outcome"] for one in committed["settlements"]] == ["completed"]
    assert [(one["message_id"], one["state"]) for one in committed["sends"]] == [("r", "available")]
    assert await api.counts() == {}
    (received,) = await api.receive("results")
    assert (received["body"], received["sequence_number"]) == ("result", committed["sends"][0]["sequence_number"])


@pytest.mark.behaviour("S0.8", "S1.11", "S1.31", "S1.60", "S1.62")
async def test_after_a_rollback_nothing_has_happened(api: ApiServer) -> None:
    message = await locked(api)
    transaction = await open_transaction(api)
    await api.send(transaction_id=transaction)
    await api.settle(message, "dead-letter", transaction_id=transaction)
    assert (await roll_back(api, transaction)).json()["state"] == "rolled_back"
    assert await api.counts() == {"locked": 1}
    assert (await api.settle(message, "complete")).json()["outcome"] == "completed"
    refused = problem(await commit(api, transaction), 409, "transaction-rolled-back")
    assert refused["cause"] == "requested"
    assert "member" not in refused


@pytest.mark.behaviour("S1.14")
@pytest.mark.parametrize(
    ("verb", "outcome"),
    [
        ("complete", "completed"),
        ("abandon", "abandoned"),
        ("dead-letter", "dead_lettered"),
        ("defer", "deferred"),
        ("release", "released"),
    ],
)
async def test_every_settlement_joins(api: ApiServer, verb: str, outcome: str) -> None:
    message = await locked(api)
    transaction = await open_transaction(api)
    await api.settle(message, verb, transaction_id=transaction)
    (settled,) = (await commit(api, transaction)).json()["settlements"]
    assert settled["outcome"] == outcome


@pytest.mark.behaviour("S1.83")
async def test_batches_and_raw_sends_join_in_order(api: ApiServer) -> None:
    transaction = await open_transaction(api)
    batch = {"messages": [{"body": "one"}, {"body": "two"}], "transaction_id": transaction}
    results = (await api.request_json("POST", "/queues/orders/messages/batch", batch))["results"]
    assert [(one["result"], one["state"]) for one in results] == [("sent", "uncommitted")] * 2
    raw = await api.request(
        "POST",
        "/queues/orders/messages/raw",
        content=b'"three"',
        headers={"content-type": "application/json", "peeklock-transaction-id": transaction},
    )
    assert raw.json()["state"] == "uncommitted"
    await commit(api, transaction)
    assert [one["body"] for one in await api.receive(max_messages=10)] == ["one", "two", "three"]


@pytest.mark.behaviour("S1.24")
async def test_publishes_join_with_a_copy_for_each_subscription(api: ApiServer) -> None:
    await api.request_json("PUT", "/topics/events", {})
    await subscribe(api, "audit", "events")
    await subscribe(api, "alerts", "events", filter="message.priority > 5")
    transaction = await open_transaction(api)
    path = "/topics/events/messages"
    published = await api.request("POST", path, {"message_id": "1", "priority": 9, "transaction_id": transaction})
    assert published.status_code == 201
    assert published.json() == {"message_id": "1", "matched": 2, "duplicates": 0, "stored": False}
    header = {"Peeklock-Transaction-Id": transaction, "Peeklock-Message-Id": "2"}
    assert (await api.request("POST", f"{path}/raw", content=b"raw", headers=header)).json()["matched"] == 1
    batch = {"messages": [{"message_id": "3"}, {"message_id": "4", "priority": 8}], "transaction_id": transaction}
    results = (await api.request_json("POST", f"{path}/batch", batch))["results"]
    assert [(result["matched"], result["stored"]) for result in results] == [(1, False), (2, False)]
    assert (await api.counts("events.audit"), await api.counts("events.alerts")) == (
        {"uncommitted": 4},
        {"uncommitted": 2},
    )
    details = await shown(api, transaction)
    assert [(item["message_id"], item["queue"]) for item in details["items"]] == [
        ("1", "events.alerts"), ("1", "events.audit"), ("2", "events.audit"), ("3", "events.audit"),
        ("4", "events.alerts"), ("4", "events.audit"),
    ]  # fmt: skip
    await subscribe(api, "late", "events")
    committed = (await commit(api, transaction)).json()
    assert [sent["message_id"] for sent in committed["sends"]] == ["1", "1", "2", "3", "4", "4"]
    assert [message["message_id"] for message in await api.receive("events.audit", max_messages=9)] == [
        "1",
        "4",
        "2",
        "3",
    ]
    assert [message["message_id"] for message in await api.receive("events.alerts", max_messages=9)] == ["1", "4"]
    assert await api.counts("events.late") == {}


async def test_a_publish_without_a_match_joins_and_changes_nothing(api: ApiServer) -> None:
    await api.request_json("PUT", "/topics/events", {})
    transaction = await open_transaction(api)
    published = await api.request("POST", "/topics/events/messages", {"transaction_id": transaction})
    assert (published.status_code, published.json()["matched"]) == (200, 0)
    assert (await shown(api, transaction))["member_count"] == 0
    assert (await commit(api, transaction)).status_code == 200


async def test_a_publish_that_is_refused_joins_with_no_copy(api: ApiServer) -> None:
    await api.request_json("PUT", "/topics/events", {})
    await subscribe(api, "audit", "events")
    await subscribe(api, "alerts", "events")
    await api.request_json("PATCH", "/queues/events.alerts", {"status": "send_disabled"})
    transaction = await open_transaction(api)
    path, message = "/topics/events/messages", {"transaction_id": transaction}
    problem(await api.request("POST", path, message), 403, "send-disabled")
    problem(await api.request("POST", "/topics/absent/messages", message), 404, "topic-not-found")
    problem(await api.request("POST", path, {"transaction_id": "unknown"}), 404, "transaction-not-found")
    problem(await api.request("POST", path, {**message, "durability": "volatile"}), 422, "invalid-request")
    assert (await shown(api, transaction))["member_count"] == 0
    await roll_back(api, transaction)
    problem(await api.request("POST", path, message), 409, "transaction-rolled-back")


async def test_a_deleted_target_of_a_publish_rolls_its_transaction_back(api: ApiServer) -> None:
    await api.request_json("PUT", "/topics/events", {})
    await subscribe(api, "audit", "events")
    transaction = await open_transaction(api)
    await publish(api, "events", transaction_id=transaction)
    await api.request("DELETE", "/topics/events")
    await api.request("DELETE", "/queues/events.audit")
    refused = problem(await commit(api, transaction), 409, "transaction-rolled-back")
    assert (refused["cause"], refused["member"]["queue"]) == ("queue_gone", "events.audit")


async def test_a_batch_of_settlements_joins_and_each_has_its_result(api: ApiServer) -> None:
    first, second = await locked(api), await locked(api)
    await api.settle(second, "complete")
    third = await locked(api)
    transaction = await open_transaction(api)
    settlements = [
        {"lock_token": first["lock_token"], "action": "complete"},
        {"lock_token": second["lock_token"], "action": "complete"},
        {"lock_token": third["lock_token"], "action": "renew"},
        {"lock_token": "no token", "action": "complete"},
    ]
    answer = await api.request_json(
        "POST", "/queues/orders/settle", {"settlements": settlements, "transaction_id": transaction}
    )
    assert [one["result"] for one in answer["results"]] == ["settled", "refused", "renewed", "refused"]
    assert answer["results"][0]["pending"]
    assert answer["results"][1]["problem"]["code"] == "already-settled"
    assert (await shown(api, transaction))["member_count"] == 1


async def test_a_commit_is_repeated_with_the_same_answer_for_an_hour(api: ApiServer) -> None:
    transaction = await open_transaction(api)
    await api.send(transaction_id=transaction)
    first = (await commit(api, transaction)).json()
    await api.advance_time(3500)
    assert (await commit(api, transaction)).json() == first
    assert await api.counts() == {"available": 1}
    problem(await roll_back(api, transaction), 409, "transaction-ended")
    problem(await send(api, transaction_id=transaction), 409, "transaction-ended")


async def send(api: ApiServer, queue: str = "orders", **message: Any) -> httpx.Response:
    """Send a message, and return the answer as it is."""
    return await api.request("POST", f"/queues/{queue}/messages", message)


async def test_a_transaction_past_its_time_is_rolled_back(api: ApiServer) -> None:
    message = await locked(api)
    transaction = await open_transaction(api, timeout_seconds=10)
    await api.settle(message, "complete", transaction_id=transaction)
    await api.advance_time(11)
    assert problem(await send(api, transaction_id=transaction), 409, "transaction-rolled-back")["cause"] == "timeout"
    await roll_back_overdue(api.broker.transactions)
    assert (await shown(api, transaction))["cause"] == "timeout"
    assert problem(await commit(api, transaction), 409, "transaction-rolled-back")["cause"] == "timeout"
    assert (await api.settle(message, "complete")).status_code == 200


@pytest.mark.behaviour("S1.30")
async def test_a_message_that_expires_rolls_its_transaction_back(api: ApiServer) -> None:
    transaction = await open_transaction(api)
    await api.send(transaction_id=transaction)
    await api.send(transaction_id=transaction, ttl_seconds=5, message_id="mortal")
    await api.advance_time(6)
    refused = problem(await commit(api, transaction), 409, "transaction-rolled-back")
    assert refused["cause"] == "message_expired"
    assert refused["member"] == {"place": 1, "queue": "orders", "message_id": "mortal"}
    assert await api.counts() == {}


@pytest.mark.behaviour("S1.30")
async def test_a_message_that_expires_rolls_its_transaction_back_without_a_commit(api: ApiServer) -> None:
    transaction, other = await open_transaction(api), await open_transaction(api)
    await api.send(transaction_id=transaction)
    await api.send(transaction_id=transaction, ttl_seconds=5, message_id="mortal")
    await api.send(transaction_id=other, ttl_seconds=50)
    await api.advance_time(6)
    await roll_back_overdue(api.broker.transactions)
    ended = await shown(api, transaction)
    assert (ended["state"], ended["cause"]) == ("rolled_back", "message_expired")
    assert ended["member"] == {"place": 1, "queue": "orders", "message_id": "mortal"}
    assert (await shown(api, other))["state"] == "open"


async def test_a_join_after_a_member_expired_names_it(api: ApiServer) -> None:
    message = await locked(api)
    sent, settled = [await open_transaction(api) for _ in range(2)]
    for transaction in (sent, settled):
        await api.send(transaction_id=transaction, ttl_seconds=5, message_id="mortal")
    await api.clock.advance(6)
    for answer in (
        await send(api, transaction_id=sent),
        await api.settle(message, "complete", transaction_id=settled),
    ):
        refused = problem(answer, 409, "transaction-rolled-back")
        assert (refused["cause"], refused["member"]["message_id"]) == ("message_expired", "mortal")


async def test_a_lock_that_an_administrator_takes_rolls_its_transaction_back(api: ApiServer) -> None:
    message = await locked(api)
    transaction = await open_transaction(api)
    await api.send("results", transaction_id=transaction)
    await api.settle(message, "complete", transaction_id=transaction)
    await api.request_json("POST", "/queues/orders/purge", {"states": ["locked"]})
    refused = problem(await commit(api, transaction), 409, "transaction-rolled-back")
    assert refused["cause"] == "lock_lost"
    assert refused["member"] == {"place": 1, "queue": "orders", "sequence_number": message["sequence_number"]}
    assert await api.receive("results") == []
    assert (await shown(api, transaction))["member"] == refused["member"]


async def test_outside_settlements_of_a_message_that_waits_are_refused(api: ApiServer) -> None:
    message = await locked(api)
    transaction, other = await open_transaction(api), await open_transaction(api)
    await api.settle(message, "complete", transaction_id=transaction)
    for verb, fields in (
        ("complete", {}),
        ("abandon", {}),
        ("dead-letter", {}),
        ("abandon", {"transaction_id": transaction}),
        ("complete", {"transaction_id": other}),
        ("renew", {"lock_seconds": 1, "exact": True}),
    ):
        problem(await api.settle(message, verb, **fields), 409, "message-in-transaction")
    unit = {"settlements": [{"queue": "orders", "lock_token": message["lock_token"], "action": "complete"}]}
    problem(await api.request("POST", "/transactions/execute", unit), 409, "message-in-transaction")
    again = (await api.settle(message, "complete", transaction_id=transaction)).json()
    assert again["replayed"]
    assert (await commit(api, transaction)).status_code == 200


async def test_a_lock_that_waits_can_be_renewed(api: ApiServer) -> None:
    message = await locked(api)
    transaction = await open_transaction(api)
    await api.settle(message, "complete", transaction_id=transaction)
    assert (await api.settle(message, "renew", lock_seconds=1)).status_code == 200
    await api.advance_time(30)
    assert await api.counts() == {"locked": 1}
    assert (await commit(api, transaction)).status_code == 200


async def test_a_lock_that_has_ended_joins_no_transaction(api: ApiServer) -> None:
    message = await locked(api)
    transaction = await open_transaction(api)
    await api.clock.advance(31)
    problem(await api.settle(message, "complete", transaction_id=transaction), 410, "lock-lost")
    assert await api.counts() == {"available": 1}
    problem(await api.settle(message, "abandon", transaction_id=transaction), 410, "lock-lost")


@pytest.mark.behaviour("S1.27")
async def test_a_transaction_shows_its_members_page_by_page(api: ApiServer) -> None:
    message = await locked(api)
    transaction = await open_transaction(api)
    await api.send(body="one", message_id="one", transaction_id=transaction)
    await api.settle(message, "defer", transaction_id=transaction)
    await api.send("results", body="two", message_id="two", transaction_id=transaction)
    page = await shown(api, transaction, limit=2)
    assert (page["state"], page["member_count"], page["cause"], page["member"]) == ("open", 3, None, None)
    first, second = page["items"]
    assert (first["place"], first["queue"], first["message_id"]) == (0, "orders", "one")
    assert first["bytes"] > 2048
    assert (second["sequence_number"], second["outcome"]) == (message["sequence_number"], "deferred")
    (third,) = (await shown(api, transaction, cursor=page["next_cursor"]))["items"]
    assert (third["queue"], third["message_id"]) == ("results", "two")
    await commit(api, transaction)
    ended = await shown(api, transaction)
    assert (ended["state"], ended["items"], ended["next_cursor"]) == ("committed", [], None)


@pytest.mark.behaviour("S1.65")
async def test_a_round_of_redelivery_leaves_uncommitted_messages_alone(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"redelivery": "on_request"})
    transaction = await open_transaction(api)
    await api.send(body="delivered")
    await api.receive(receiver_id="worker")
    await api.send(body="uncommitted", transaction_id=transaction)
    recovered = await api.request_json("POST", "/queues/orders/recover", {"receiver_id": "worker"})
    assert [one["body"] for one in recovered["messages"]] == ["delivered"]
    await commit(api, transaction)
    assert [one["body"] for one in await api.receive(receiver_id="worker", max_messages=9)] == ["uncommitted"]


async def test_a_foreign_or_unknown_transaction_is_not_found(api_with_keys: ApiServer) -> None:
    api = api_with_keys
    owner = {"authorization": f"Bearer {await api.new_key(*Right, principal='owner')}"}
    stranger = {"authorization": f"Bearer {await api.new_key(*Right, principal='stranger')}"}
    transaction = (await api.request_json("POST", "/transactions", headers=owner))["id"]
    for name, headers in ((transaction, stranger), ("unknown", owner)):
        for method, path, body in (
            ("GET", f"/transactions/{name}", None),
            ("POST", f"/transactions/{name}/commit", {}),
            ("POST", f"/transactions/{name}/rollback", {}),
            ("POST", "/queues/orders/messages", {"transaction_id": name}),
        ):
            response = await api.request(method, path, body, headers=headers)
            problem(response, 404, "transaction-not-found")
    assert (await commit(api, transaction, headers=owner)).status_code == 200


async def test_a_client_at_its_limit_of_transactions_stops_no_other(api_with_keys: ApiServer) -> None:
    api = api_with_keys
    busy = {"authorization": f"Bearer {await api.new_key(*Right, principal='busy')}"}
    again = {"authorization": f"Bearer {await api.new_key(*Right, principal='busy')}"}
    quiet = {"authorization": f"Bearer {await api.new_key(Right.SEND, principal='quiet')}"}
    ids = [
        (await api.request_json("POST", "/transactions", headers=busy))["id"]
        for _ in range(OPEN_TRANSACTIONS_PER_PRINCIPAL)
    ]
    for headers in (busy, again):
        refused = problem(await api.request("POST", "/transactions", headers=headers), 409, "too-many-transactions")
        assert "PEEKLOCK_MAX_TRANSACTIONS_PER_PRINCIPAL" in refused["detail"]
        assert refused["retryable"] is True
    assert (await api.request("POST", "/transactions", headers=quiet)).status_code == 201
    await commit(api, ids[0], headers=busy)
    assert (await api.request("POST", "/transactions", headers=again)).status_code == 201


async def test_a_send_that_is_refused_does_not_join(api: ApiServer) -> None:
    transaction = await open_transaction(api)
    await api.request_json("PUT", "/queues/orders", {"max_message_bytes": 10, "max_messages": 1})
    problem(await send(api, transaction_id=transaction, body="a" * 100), 413, "message-too-large")
    batch = {"messages": [{}, {}], "transaction_id": transaction}
    problem(await api.request("POST", "/queues/orders/messages/batch", batch), 507, "queue-full")
    await api.request_json("PATCH", "/queues/orders", {"status": "send_disabled"})
    problem(await send(api, transaction_id=transaction), 403, "send-disabled")
    assert (await shown(api, transaction))["member_count"] == 0


async def test_what_a_transaction_cannot_do_is_refused(api: ApiServer) -> None:
    transaction = await open_transaction(api)
    volatile = await send(api, transaction_id=transaction, durability="volatile")
    problem(volatile, 422, "invalid-request")
    batch = {"messages": [{}], "atomic": False, "transaction_id": transaction}
    assert pointers(await api.request("POST", "/queues/orders/messages/batch", batch)) == ["/atomic"]
    inside = {"messages": [{"transaction_id": transaction}]}
    assert pointers(await api.request("POST", "/queues/orders/messages/batch", inside)) == [
        "/messages/0/transaction_id"
    ]
    assert pointers(await api.request("GET", f"/transactions/{transaction}", params={"cursor": "x"})) == [
        "#/query/cursor"
    ]
    assert (await shown(api, transaction))["member_count"] == 0


async def test_receivers_wait_no_longer_than_the_commit(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {})
    transaction = await open_transaction(api)
    waiting = asyncio.create_task(api.receive(wait_seconds=30))
    await asyncio.sleep(0)
    await api.send(body="now", transaction_id=transaction)
    await commit(api, transaction)
    (message,) = await waiting
    assert message["body"] == "now"
