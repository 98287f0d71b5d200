"""A queue as a channel: rounds of delivery, receivers that fail, volatile messages, and questions about states."""

import asyncio
from typing import Any

import pytest

from tests.api.api_server import ApiServer
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


@pytest.mark.behaviour("S1.63", "S1.64")
async def test_a_round_delivers_all_that_waits_and_the_count_says_what_is_left(api: ApiServer) -> None:
    for body in range(25):
        await api.send(body=body)
    first = await api.receive(max_messages=20)
    assert await api.counts() == {"locked": 20, "available": 5}
    second = await api.receive(max_messages=20)
    assert [message["body"] for message in (*first, *second)] == list(range(25))
    assert await api.counts() == {"locked": 25}
    assert await api.receive(max_messages=20) == []
    assert await api.counts() == {"locked": 25}


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
