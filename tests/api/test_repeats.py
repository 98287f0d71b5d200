"""What an Idempotency-Key covers: one principal, one verb, one queue, one day. What a repeat does not wake."""

from typing import Any

import pytest

from app.domain.access import Right
from tests.api.house import House, problem

KEY = {"Idempotency-Key": "5f2b"}
SEND, RECEIVE = "/queues/orders/messages", "/queues/orders/messages/receive"
HOUR = 3600


async def test_a_key_counts_for_one_principal(guarded: House) -> None:
    first, second = [
        {**KEY, "Authorization": f"Bearer {await guarded.key(Right.SEND, principal=principal)}"}
        for principal in ("shop", "till")
    ]
    answers = [await guarded.call("POST", SEND, {"body": 1}, headers=headers) for headers in (first, second, first)]
    assert [answer.json()["sequence_number"] for answer in answers] == [1, 2, 1]
    assert ["idempotency-replayed" in answer.headers for answer in answers] == [False, False, True]
    other = await guarded.call("POST", SEND, {"body": 2}, headers=first)
    problem(other, 422, "idempotency-key-reused")


async def test_a_key_of_another_principal_receives_other_messages(guarded: House) -> None:
    every = [Right.SEND, Right.LISTEN]
    first, second = [
        {"Authorization": f"Bearer {await guarded.key(*every, principal=principal)}"} for principal in ("shop", "till")
    ]
    for body in (1, 2):
        await guarded.ask("POST", SEND, {"body": body}, headers=first)
    taken = [
        (await guarded.ask("POST", RECEIVE, {}, headers={**KEY, **caller}))["messages"][0]["body"]
        for caller in (first, second, first)
    ]
    assert taken == [1, 2, 1]


@pytest.mark.parametrize("status", ["send_disabled", "disabled"])
@pytest.mark.parametrize(
    ("path", "body"), [(SEND, {"body": 1}), (f"{SEND}/batch", {"messages": [{"body": 1}]}), (f"{SEND}/raw", {})]
)
async def test_a_key_opens_no_queue_that_is_closed_to_senders(house: House, path: str, body: Any, status: str) -> None:
    await house.ask("PUT", "/queues/orders", {"status": status})
    problem(await house.call("POST", path, body, headers=KEY), 403, "send-disabled")
    assert await house.counts() == {}
    await house.ask("PUT", "/queues/orders", {})
    answer = await house.call("POST", path, body, headers=KEY)
    assert (answer.status_code, "idempotency-replayed" in answer.headers) == (201, False)


@pytest.mark.parametrize("status", ["receive_disabled", "disabled"])
async def test_a_key_opens_no_queue_that_is_closed_to_receivers(house: House, status: str) -> None:
    await house.send(body=1)
    await house.ask("PUT", "/queues/orders", {"status": status})
    problem(await house.call("POST", RECEIVE, {}, headers=KEY), 403, "receive-disabled")
    assert await house.counts() == {"available": 1}
    await house.ask("PUT", "/queues/orders", {})
    answer = await house.call("POST", RECEIVE, {}, headers=KEY)
    assert [message["delivery_count"] for message in answer.json()["messages"]] == [1]


async def forget(house: House) -> None:
    """Let the store forget what it need not remember any more."""
    while await house.broker.store.forget(100):
        pass


async def test_a_key_is_remembered_for_a_day(house: House) -> None:
    first = await house.call("POST", SEND, {"body": 1}, headers=KEY)
    await house.pass_time(24 * HOUR - 1)
    await forget(house)
    again = await house.call("POST", SEND, {"body": 1}, headers=KEY)
    assert again.json() == first.json()
    await house.pass_time(2)
    await forget(house)
    later = await house.call("POST", SEND, {"body": 1}, headers=KEY)
    assert later.json()["sequence_number"] == 2


async def test_each_result_of_a_mixed_batch_stands_where_its_settlement_stood(house: House) -> None:
    for body in range(6):
        await house.send(body=body)
    tokens = [message["lock_token"] for message in await house.receive(max_messages=6)]
    asked = [
        {"action": "renew", "lock_token": tokens[0], "lock_seconds": 100},
        {"action": "complete", "lock_token": tokens[1]},
        {"action": "renew", "lock_token": tokens[2], "lock_seconds": 200},
        {"action": "dead_letter", "lock_token": tokens[3]},
        {"action": "abandon", "lock_token": tokens[4]},
        {"action": "renew", "lock_token": f"{tokens[5][:-1]}{'0' if tokens[5][-1] != '0' else '1'}"},
        {"action": "defer", "lock_token": tokens[5]},
    ]
    results = (await house.ask("POST", "/queues/orders/settle", {"settlements": asked}))["results"]
    assert [result["lock_token"] for result in results] == [one["lock_token"] for one in asked]
    assert [result.get("lock_remaining_ms", result.get("outcome")) for result in results] == [
        100_000, "completed", 200_000, "dead_lettered", "abandoned", None, "deferred",
    ]  # fmt: skip
    assert [result.get("sequence_number") for result in results] == [None, 2, None, 4, 5, None, 6]
    assert results[5]["problem"]["code"] == "message-not-found"
    assert await house.counts() == {"available": 1, "locked": 2, "deferred": 1, "dead_lettered": 1}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (SEND, {"message_id": "m"}),
        (f"{SEND}/batch", {"messages": [{"message_id": "m"}, {"message_id": "m"}]}),
        (f"{SEND}/batch", {"messages": [{"message_id": "m"}], "atomic": False}),
    ],
)
@pytest.mark.parametrize("headers", [{}, KEY])
async def test_a_duplicate_wakes_no_receiver(house: House, path: str, body: Any, headers: dict[str, str]) -> None:
    await house.ask("PUT", "/queues/orders", {"duplicate_detection_window_seconds": 60})
    queue = await house.broker.catalogue.named("orders")
    if body.get("atomic") is False:
        headers = {}
    await house.send(message_id="m")
    with house.broker.waiting.waiter(queue.id) as waiter:
        answer = await house.ask("POST", path, body, headers=headers)
        assert {one["duplicate"] for one in answer.get("results", [answer])} == {True}
        assert not await waiter.rung(0)
        await house.send(message_id="another")
        assert await waiter.rung(0)


async def test_a_repeat_wakes_no_receiver(house: House) -> None:
    await house.call("POST", SEND, {"body": 1}, headers=KEY)
    queue = await house.broker.catalogue.named("orders")
    with house.broker.waiting.waiter(queue.id) as waiter:
        answer = await house.call("POST", SEND, {"body": 1}, headers=KEY)
        assert answer.headers["idempotency-replayed"] == "true"
        assert not await waiter.rung(0)
