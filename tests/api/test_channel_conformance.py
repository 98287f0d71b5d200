"""A queue as a channel: rounds of delivery, receivers that fail, volatile messages, and questions about states."""

import asyncio
from typing import Any

import pytest

from app.domain.refusals import StoreUnavailable
from tests.api.api_server import ApiServer, pointers, problem
from tests.bounds import bounded

STATES = ("available", "scheduled", "locked", "deferred", "dead_lettered")


async def stored(api: ApiServer, count: int) -> list[Any]:
    """Return the messages of the queue once it holds this many."""
    for _ in bounded("the volatile messages are stored"):
        items = (await api.request_json("GET", "/queues/orders/messages"))["items"]
        if len(items) == count:
            return items
        await asyncio.sleep(0)
    raise AssertionError


async def send_volatile(api: ApiServer, body: Any) -> None:
    answer = await api.request("POST", "/queues/orders/messages", {"body": body, "durability": "volatile"})
    assert answer.status_code == 202


async def receive_round(api: ApiServer, queue: str = "orders", **wanted: Any) -> tuple[list[Any], bool]:
    """Return the bodies that a receive gets, and whether messages are left."""
    path = f"/queues/{queue}/messages/receive"
    answer = await api.request_json("POST", path, {"max_messages": 20, "check_more": True, **wanted})
    return [message["body"] for message in answer["messages"]], answer["has_more"]


@pytest.mark.behaviour("S1.63")
async def test_a_round_delivers_all_that_waits(api: ApiServer) -> None:
    for body in range(20):
        await api.send(body=body)
    assert await receive_round(api) == ([*range(20)], False)
    assert await api.counts() == {"locked": 20}


@pytest.mark.behaviour("S1.63", "S1.64")
async def test_a_round_says_whether_messages_are_left(api: ApiServer) -> None:
    for body in range(25):
        await api.send(body=body)
    await api.send(body="later", delay_seconds=60)
    assert await receive_round(api) == ([*range(20)], True)
    assert await receive_round(api) == ([*range(20, 25)], False)
    assert await receive_round(api) == ([], False)
    await api.advance_time(20)
    await api.send(body="short", ttl_seconds=5)
    assert await receive_round(api, max_messages=1, source="dead_letter") == ([], False)
    await api.clock.advance(5)
    assert await receive_round(api) == ([], False)


@pytest.mark.behaviour("S1.64")
async def test_a_round_of_dead_letters_looks_at_dead_letters(api: ApiServer) -> None:
    for body in range(3):
        await api.send(body=body)
    for message in await api.receive(max_messages=2):
        await api.settle(message, "dead-letter")
    assert await receive_round(api, source="dead_letter", max_messages=1) == ([0], True)
    assert await receive_round(api, source="dead_letter", max_messages=1) == ([1], False)
    assert await receive_round(api) == ([2], False)


@pytest.mark.behaviour("S1.64")
async def test_a_round_of_one_group_looks_at_the_group(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"group_in_flight": 2})
    for body in range(3):
        await api.send(body=body, group_id="a")
    await api.send(body="other", group_id="b")
    assert await receive_round(api, group_id="a", max_messages=1) == ([0], True)
    # The third message of the group is blocked until one of the others has ended.
    assert await receive_round(api, group_id="a", max_messages=1) == ([1], False)
    assert await receive_round(api) == (["other"], False)


@pytest.mark.behaviour("S1.64")
async def test_has_more_is_read_after_a_wait_and_at_each_repeat(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders")
    waiting = asyncio.create_task(receive_round(api, max_messages=1, wait_seconds=20))
    await api.clock.advance(1)
    await api.request_json("POST", "/queues/orders/messages/batch", {"messages": [{"body": 0}, {"body": 1}]})
    assert await waiting == ([0], True)
    repeated: dict[str, Any] = {"body": {"check_more": True}, "headers": {"Idempotency-Key": "k"}}
    first = await api.request_json("POST", "/queues/orders/messages/receive", **repeated)
    await api.send(body=2)
    again = await api.request_json("POST", "/queues/orders/messages/receive", **repeated)
    assert [answer["messages"][0]["body"] for answer in (first, again)] == [1, 1]
    assert [answer["has_more"] for answer in (first, again)] == [False, True]


async def test_a_receive_without_check_more_reads_nothing_more(api: ApiServer) -> None:
    await api.send()
    unasked = api.with_store(candidates=None)
    assert "has_more" not in await unasked.request_json("POST", "/queues/orders/messages/receive", {})


@pytest.mark.parametrize(
    "other", [{"filter": "message.priority > 1"}, {"sequence_numbers": [1]}, {"mode": "receive_and_delete"}], ids=str
)
async def test_check_more_is_refused_where_it_cannot_be_answered(api: ApiServer, other: Any) -> None:
    await api.send()
    refused = await api.request("POST", "/queues/orders/messages/receive", {"check_more": True, **other})
    assert pointers(refused) == ["/check_more"]
    assert await api.counts() == {"available": 1}


async def test_messages_are_released_if_looking_for_more_fails(api: ApiServer) -> None:
    async def fail(*_: object) -> Any:
        raise StoreUnavailable

    await api.send()
    failing = api.with_store(candidates=fail)
    refused = await failing.request("POST", "/queues/orders/messages/receive", {"check_more": True})
    problem(refused, 503, "store-unavailable")
    assert await api.counts() == {"available": 1}
    (message,) = await api.receive()
    assert message["failure_count"] == 0


@pytest.mark.behaviour("S1.33")
async def test_a_message_that_no_receiver_accepts_waits(api: ApiServer) -> None:
    await api.send(properties={"region": "eu"})
    before = (await api.request_json("GET", "/queues/orders/messages"))["items"]
    for region in ("us", "asia"):
        assert await api.receive(filter=f"message.properties.region == '{region}'") == []
    assert (await api.request_json("GET", "/queues/orders/messages"))["items"] == before
    assert before[0]["state"] == "available"
    assert len(await api.receive()) == 1


@pytest.mark.behaviour("S1.34")
async def test_a_message_waits_when_every_receiver_is_broken(api: ApiServer) -> None:
    await api.send(body="patient")
    for receiver in ("one", "two", "three"):
        assert len(await api.receive(receiver_id=receiver)) == 1
        await api.advance_time(31)
        assert await api.counts() == {"available": 1}
    assert [message["body"] for message in await api.receive()] == ["patient"]


@pytest.mark.behaviour("S1.36")
async def test_a_message_waits_when_its_first_delivery_fails(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders")
    waiting = asyncio.create_task(api.receive(wait_seconds=20))
    await api.clock.advance(1)
    sent = await api.send(body="at once")
    (message,) = await waiting
    assert message["sequence_number"] == sent["sequence_number"]
    await api.settle(message, "abandon")
    assert await api.counts() == {"available": 1}


@pytest.mark.behaviour("S1.54")
async def test_a_receiver_that_never_settles_holds_up_no_other(api: ApiServer) -> None:
    for body in range(4):
        await api.send(body=body)
    (held,) = await api.receive(receiver_id="blocked")
    for body in (1, 2, 3):
        (message,) = await api.receive(receiver_id="working")
        assert message["body"] == body
        assert (await api.settle(message, "complete")).status_code == 200
    assert await api.counts() == {"locked": 1}
    assert (await api.settle(held, "complete")).status_code == 200


@pytest.mark.behaviour("S1.16", "S1.20")
async def test_volatile_messages_are_stored_although_their_sender_did_not_wait(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders")
    await send_volatile(api, "light")
    (item,) = await stored(api, 1)
    assert (item["body"], item["state"]) == ("light", "available")


@pytest.mark.behaviour("S1.84")
async def test_order_holds_within_each_class_of_durability(api: ApiServer) -> None:
    for number in range(10):
        await send_volatile(api, f"volatile-{number}")
        await api.send(body=f"durable-{number}")
    await stored(api, 20)
    bodies = [message["body"] for message in await api.receive(max_messages=20)]
    for kind in ("durable", "volatile"):
        assert [body for body in bodies if body.startswith(kind)] == [f"{kind}-{number}" for number in range(10)]


@pytest.mark.behaviour("S1.72")
async def test_counts_and_pages_of_each_state_agree_with_what_was_done(api: ApiServer) -> None:
    expected: dict[str, int] = dict.fromkeys(STATES, 0)

    async def changed(**changes: int) -> None:
        for state, change in changes.items():
            expected[state] += change
        assert await api.counts() == {state: count for state, count in expected.items() if count}
        for state in STATES:
            page = await api.request_json("GET", "/queues/orders/messages", params={"state": state})
            assert len(page["items"]) == expected[state]

    for _ in range(4):
        await api.send()
        await changed(available=1)
    await api.send(delay_seconds=60)
    await changed(scheduled=1)
    done, deferred, dead = await api.receive(max_messages=3)
    await changed(available=-3, locked=3)
    await api.settle(done, "complete")
    await changed(locked=-1)
    await api.settle(deferred, "defer")
    await changed(locked=-1, deferred=1)
    await api.settle(dead, "dead-letter")
    await changed(locked=-1, dead_lettered=1)
    await api.advance_time(60)
    await changed(scheduled=-1, available=1)
