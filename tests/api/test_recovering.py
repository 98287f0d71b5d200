"""Redelivery on request: a receiver keeps what it has received until it settles it or asks for it again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.domain.access import Right
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from tests.api.api_server import ApiServer, pointers, problem

MONTH = 30 * 24 * 3600


@pytest.fixture
async def on_request(api: ApiServer) -> ApiServer:
    """A server whose queue `orders` delivers again on request alone."""
    await api.request_json("PUT", "/queues/orders", {"redelivery": "on_request"})
    return api


async def recover(api: ApiServer, receiver: str = "worker", **fields: Any) -> list[Any]:
    """Recover the messages of a receiver."""
    return (await api.request_json("POST", "/queues/orders/recover", {"receiver_id": receiver, **fields}))["messages"]


def bodies(messages: Sequence[Any]) -> list[Any]:
    return [message["body"] for message in messages]


@pytest.mark.behaviour("S1.38", "S1.43", "S1.51")
async def test_a_held_message_is_delivered_to_no_other_receiver_however_late(on_request: ApiServer) -> None:
    await on_request.send(body="kept")
    (held,) = await on_request.receive(receiver_id="worker")
    for _ in range(3):
        await on_request.advance_time(MONTH)
        assert await on_request.counts() == {"locked": 1}
        assert await on_request.receive(receiver_id="other") == []
        assert await on_request.receive(receiver_id="worker") == []
    (shown,) = (await on_request.request_json("GET", "/queues/orders/messages"))["items"]
    assert (shown["state"], shown["failure_count"]) == ("locked", 0)
    assert shown["sequence_number"] == held["sequence_number"]


@pytest.mark.behaviour("S1.58")
async def test_a_delivery_locks_a_waiting_message_and_leaves_a_delivered_one_locked(on_request: ApiServer) -> None:
    await on_request.send()
    assert await on_request.counts() == {"available": 1}
    (first,) = await on_request.receive(receiver_id="worker")
    assert await on_request.counts() == {"locked": 1}
    (again,) = await recover(on_request)
    assert (first["delivery_count"], again["delivery_count"]) == (1, 2)
    assert await on_request.counts() == {"locked": 1}
    assert await on_request.receive(receiver_id="other") == []
    assert (await on_request.settle(again, "complete")).json()["outcome"] == "completed"
    assert await on_request.counts() == {}


@pytest.mark.behaviour("S1.48", "S1.49", "S1.59")
async def test_a_late_acknowledgment_of_the_holder_removes_the_message(on_request: ApiServer) -> None:
    await on_request.send()
    (held,) = await on_request.receive(receiver_id="worker")
    await on_request.advance_time(MONTH)
    assert (await on_request.settle(held, "complete")).json()["outcome"] == "completed"
    assert await on_request.counts() == {}
    assert await recover(on_request) == []


@pytest.mark.behaviour("S1.66", "S1.67", "S1.69")
async def test_a_receiver_that_was_away_gets_all_that_it_holds_in_order(on_request: ApiServer) -> None:
    for body in range(3):
        await on_request.send(body=body)
    await on_request.send(body="urgent", priority=9)
    first = [(await on_request.receive(receiver_id="worker"))[0] for _ in range(4)]
    await on_request.advance_time(MONTH)
    again = await recover(on_request)
    assert bodies(again) == ["urgent", 0, 1, 2]
    assert all(message["redelivered"] and message["delivery_count"] == 2 for message in again)
    assert not {message["lock_token"] for message in first} & {message["lock_token"] for message in again}
    assert await recover(on_request, "other") == []


@pytest.mark.behaviour("S1.50")
async def test_an_acknowledgment_of_a_redelivery_removes_the_message(on_request: ApiServer) -> None:
    await on_request.send()
    await on_request.receive(receiver_id="worker")
    (again,) = await recover(on_request)
    assert (await on_request.settle(again, "complete")).status_code == 200
    assert await on_request.counts() == {}


@pytest.mark.behaviour("S1.68")
async def test_a_redelivery_may_be_acknowledged_later_or_asked_for_again(on_request: ApiServer) -> None:
    await on_request.send(body="again")
    await on_request.receive(receiver_id="worker")
    await recover(on_request)
    (third,) = await recover(on_request)
    assert third["delivery_count"] == 3
    await on_request.advance_time(MONTH)
    assert (await on_request.settle(third, "complete")).status_code == 200


@pytest.mark.behaviour("S1.70")
async def test_messages_that_arrive_between_two_rounds_are_received_and_not_recovered(on_request: ApiServer) -> None:
    await on_request.send(body="old")
    await on_request.receive(receiver_id="worker")
    await on_request.send(body="new")
    assert bodies(await recover(on_request)) == ["old"]
    assert bodies(await on_request.receive(receiver_id="worker", max_messages=9)) == ["new"]
    assert bodies(await recover(on_request)) == ["old", "new"]


@pytest.mark.behaviour("S1.47")
@pytest.mark.parametrize("dead_letters", [False, True])
async def test_a_held_message_is_removed_when_it_expires(on_request: ApiServer, dead_letters: bool) -> None:
    await on_request.request_json("PATCH", "/queues/orders", {"dead_letter_on_expiry": dead_letters})
    await on_request.send(ttl_seconds=100)
    (held,) = await on_request.receive(receiver_id="worker")
    assert held["locked_until"] == held["expires_at"]
    await on_request.advance_time(99)
    assert await on_request.counts() == {"locked": 1}
    await on_request.advance_time(2)
    assert await on_request.counts() == ({"dead_lettered": 1} if dead_letters else {})
    assert problem(await on_request.settle(held, "complete"), 410, "lock-lost")["cause"] == "expired"
    assert await recover(on_request) == []
    assert await on_request.receive(receiver_id="other") == []


async def test_an_old_token_is_lost_and_says_why(on_request: ApiServer) -> None:
    await on_request.send()
    (old,) = await on_request.receive(receiver_id="worker")
    await recover(on_request)
    for verb in ("complete", "abandon", "renew"):
        lost = problem(await on_request.settle(old, verb), 410, "lock-lost")
        assert (lost["cause"], lost["delivered_again"]) == ("recovered", True)
    assert await on_request.counts() == {"locked": 1}


async def test_a_held_message_returns_when_its_receiver_abandons_it(on_request: ApiServer) -> None:
    await on_request.send()
    (held,) = await on_request.receive(receiver_id="worker")
    await on_request.settle(held, "abandon")
    (message,) = await on_request.receive(receiver_id="other")
    assert (message["failure_count"], message["redelivered"]) == (1, True)


async def test_an_administrator_removes_held_messages(on_request: ApiServer) -> None:
    await on_request.send()
    (held,) = await on_request.receive(receiver_id="worker")
    assert await on_request.request_json("POST", "/queues/orders/purge", {"states": ["locked"]}) == {"removed": 1}
    lost = problem(await on_request.settle(held, "complete"), 410, "lock-lost")
    assert lost["cause"] == "settled_by_administrator"
    assert await recover(on_request) == []


@pytest.mark.parametrize("wanted", [{}, {"mode": "receive_and_delete"}, {"source": "dead_letter"}])
async def test_a_receiver_without_a_name_is_refused_before_anything_is_settled(
    on_request: ApiServer, wanted: dict[str, Any]
) -> None:
    await on_request.send()
    (held,) = await on_request.receive(receiver_id="worker")
    settlement = {"action": "complete", "lock_token": held["lock_token"]}
    for settlements in ([], [settlement]):
        body = {**wanted, "settlements": settlements}
        answer = await on_request.request("POST", "/queues/orders/messages/receive", body)
        assert pointers(answer) == ["/receiver_id"]
    assert await on_request.counts() == {"locked": 1}


async def test_a_renewal_leaves_a_lock_without_an_end_as_it_is(on_request: ApiServer) -> None:
    await on_request.send()
    (held,) = await on_request.receive(receiver_id="worker", lock_seconds=5)
    renewed = await on_request.settle(held, "renew", lock_seconds=5)
    assert renewed.json()["locked_until"] == held["locked_until"]
    await on_request.advance_time(MONTH)
    assert (await on_request.settle(held, "complete")).status_code == 200
    problem(await on_request.settle(held, "renew"), 409, "already-settled")


async def test_a_renewal_after_the_message_expired_is_refused(on_request: ApiServer) -> None:
    await on_request.send(ttl_seconds=10)
    (held,) = await on_request.receive(receiver_id="worker")
    await on_request.clock.advance(11)
    problem(await on_request.settle(held, "renew"), 410, "lock-lost")


@pytest.mark.parametrize(("before", "after"), [("automatic", "on_request"), ("on_request", "automatic")])
async def test_a_change_of_the_setting_revokes_locks(api: ApiServer, before: str, after: str) -> None:
    await api.request_json("PUT", "/queues/orders", {"redelivery": before})
    await api.send()
    (held,) = await api.receive(receiver_id="worker")
    await api.request_json("PATCH", "/queues/orders", {"redelivery": after})
    assert problem(await api.settle(held, "complete"), 410, "lock-lost")["cause"] == "entity_changed"
    assert await api.counts() == {"available": 1}


async def test_any_queue_delivers_locked_messages_to_their_receiver_again(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"max_delivery_count": 1})
    await api.send(body="automatic")
    (old,) = await api.receive(receiver_id="worker")
    assert (await api.settle(old, "renew")).status_code == 200
    await api.clock.advance(20)
    (again,) = await recover(api)
    assert (again["body"], again["failure_count"], again["lock_remaining_ms"]) == ("automatic", 0, 30_000)
    problem(await api.settle(old, "renew"), 410, "lock-lost")
    await api.clock.advance(20)
    assert (await api.settle(again, "complete")).status_code == 200


async def test_an_automatic_queue_gives_back_no_message_whose_lock_has_ended(api: ApiServer) -> None:
    await api.send()
    await api.receive(receiver_id="worker")
    await api.clock.advance(31)
    assert await recover(api) == []


async def test_a_recovered_message_keeps_its_group_waiting_until_it_is_settled(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"redelivery": "on_request", "group_in_flight": 1})
    for body in ("first", "second"):
        await api.send(body=body, group_id="eu")
    await api.receive(receiver_id="worker", max_messages=9)
    await api.advance_time(MONTH)
    (again,) = await recover(api)
    assert await api.counts() == {"locked": 1, "blocked": 1}
    assert (await api.settle(again, "complete")).status_code == 200
    assert bodies(await api.receive(receiver_id="other", max_messages=9)) == ["second"]


async def test_a_group_continues_after_a_held_message_expires(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"redelivery": "on_request", "group_in_flight": 1})
    await api.send(body="first", group_id="eu", ttl_seconds=10)
    await api.send(body="second", group_id="eu")
    await api.receive(receiver_id="worker")
    await api.advance_time(11)
    assert bodies(await api.receive(receiver_id="other", max_messages=9)) == ["second"]


async def test_a_receive_that_is_repeated_under_its_key_after_a_recovery_gets_nothing(on_request: ApiServer) -> None:
    await on_request.send()
    path, body, key = "/queues/orders/messages/receive", {"receiver_id": "worker"}, {"Idempotency-Key": "one"}
    first = await on_request.request_json("POST", path, body, headers=key)
    assert len(first["messages"]) == 1
    assert await on_request.request_json("POST", path, body, headers=key) == first
    await recover(on_request)
    assert await on_request.request_json("POST", path, body, headers=key) == {"messages": []}


async def test_an_answer_that_is_full_is_continued_after_its_messages_are_settled(on_request: ApiServer) -> None:
    body = "x" * 1000
    size = len(body) + 2 + MESSAGE_OVERHEAD_BYTES
    for _ in range(3):
        await on_request.send(body=body)
    await on_request.receive(receiver_id="worker", max_messages=3)
    assert len(await recover(on_request, max_messages=2)) == 2
    limits = replace(on_request.broker.response_limits, max_bytes=2 * size)
    limited = ApiServer(replace(on_request.broker, response_limits=limits), on_request.clock, None)
    answered: list[int] = []
    while messages := await recover(limited):
        answered.append(len(messages))
        for message in messages:
            await on_request.settle(message, "complete")
    assert answered == [2, 1]


async def test_a_recovery_needs_a_queue_that_receives_and_the_name_of_a_receiver(api: ApiServer) -> None:
    named = {"receiver_id": "worker"}
    problem(await api.request("POST", "/queues/orders/recover", named), 404, "queue-not-found")
    await api.request_json("PUT", "/queues/orders", {"status": "receive_disabled"})
    problem(await api.request("POST", "/queues/orders/recover", named), 403, "receive-disabled")
    for body, pointer in (
        ({}, "/receiver_id"),
        ({"receiver_id": ""}, "/receiver_id"),
        ({**named, "max_messages": 0}, "/max_messages"),
    ):
        assert pointers(await api.request("POST", "/queues/orders/recover", body)) == [pointer]


async def test_the_right_to_listen_is_enough_to_recover(api_with_keys: ApiServer) -> None:
    await api_with_keys.broker.queue_cache.by_name_for_send("orders")
    headers = {"Authorization": f"Bearer {await api_with_keys.new_key(Right.LISTEN, patterns=('orders',))}"}
    answer = await api_with_keys.request("POST", "/queues/orders/recover", {"receiver_id": "worker"}, headers=headers)
    assert answer.json() == {"messages": []}
