"""A queue as a channel: it stores what it accepts, delivers it until it is settled, and shows it when browsed."""

import asyncio
from typing import Any

import pytest

from app.broker.ports.attempts import Attempt, AttemptResult
from app.domain.delivery import Claim
from app.domain.message import Message
from tests.api.api_server import ApiServer, problem

HOUR = 3600


async def browsed_messages(api: ApiServer, **query: Any) -> list[Any]:
    """Browse the messages."""
    return (await api.request_json("GET", "/queues/orders/messages", params=query))["items"]


@pytest.mark.behaviour("S1.3")
async def test_a_sender_is_answered_long_before_a_delivery_succeeds(api: ApiServer) -> None:
    sent = await api.send(body="later")
    assert sent["state"] == "available"
    await api.advance_time(HOUR)
    (first,) = await api.receive()
    await api.advance_time(HOUR)
    (second,) = await api.receive()
    await api.settle(second, "abandon")
    (third,) = await api.receive()
    assert {message["sequence_number"] for message in (first, second, third)} == {sent["sequence_number"]}
    assert (third["body"], third["delivery_count"]) == ("later", 3)
    assert (await api.settle(third, "complete")).status_code == 200
    assert await api.counts() == {}


@pytest.mark.behaviour("S1.4")
async def test_the_state_of_a_queue_is_that_of_all_its_messages(api: ApiServer) -> None:
    for body in range(7):
        await api.send(body=body)
    await api.send(body=7, delay_seconds=HOUR)
    dead, deferred, done, _held, returned = await api.receive(max_messages=5)
    await api.settle(dead, "dead-letter")
    await api.settle(deferred, "defer")
    await api.settle(done, "complete")
    await api.settle(returned, "abandon")
    states = [message["state"] for message in await browsed_messages(api)]
    assert states == ["dead_lettered", "deferred", "locked", "available", "available", "available", "scheduled"]
    counts = {state: states.count(state) for state in states}
    assert await api.counts() == counts


@pytest.mark.behaviour("S1.32")
async def test_a_message_waits_when_there_is_no_receiver(api: ApiServer) -> None:
    await api.send(body="patient", properties={"a": 1})
    (before,) = await browsed_messages(api)
    await api.advance_time(30 * 24 * HOUR)
    assert await browsed_messages(api) == [before]
    assert before["state"] == "available"
    (message,) = await api.receive()
    assert (message["body"], message["properties"], message["redelivered"]) == ("patient", {"a": 1}, False)


@pytest.mark.behaviour("S1.37")
@pytest.mark.parametrize("failure", ["abandoned", "given back", "lock ended", "not accepted"])
async def test_an_attempt_that_fails_leaves_the_message_available(api: ApiServer, failure: str) -> None:
    await api.send(body="stays")
    if failure == "not accepted":
        assert await api.receive(filter="message.priority == 9") == []
    else:
        (message,) = await api.receive()
        if failure == "lock ended":
            await api.advance_time(31)
        else:
            await api.settle(message, "abandon", count=failure == "abandoned")
    assert await api.counts() == {"available": 1}
    assert [message["body"] for message in await api.receive()] == ["stays"]


@pytest.mark.behaviour("S1.40")
async def test_a_waiting_message_is_removed_when_it_expires(api: ApiServer) -> None:
    await api.send(body="short", ttl_seconds=10)
    await api.send(body="long", ttl_seconds=100)
    await api.advance_time(9)
    assert await api.counts() == {"available": 2}
    await api.advance_time(2)
    assert [message["body"] for message in await browsed_messages(api)] == ["long"]
    assert [message["body"] for message in await api.receive(max_messages=9)] == ["long"]


@pytest.mark.behaviour("S1.53")
async def test_a_settlement_without_a_delivery_is_refused(api: ApiServer) -> None:
    await api.send(body="untouched")
    (before,) = await browsed_messages(api)
    for number in (1, 2):
        for verb in ("complete", "abandon", "dead-letter", "defer", "renew"):
            refused = await api.settle({"lock_token": f"{number}.{'0' * 32}"}, verb)
            problem(refused, 404, "message-not-found")
    assert await browsed_messages(api) == [before]


class SlowServer:
    """A server beside another one, on its store: its receives are answered only when `go_on` is set."""

    def __init__(self, api: ApiServer) -> None:
        self.has_claimed, self.go_on = asyncio.Event(), asyncio.Event()
        self._claim_or_replay = api.broker.store.claim_or_replay
        self.api = api.with_store(claim_or_replay=self._claim_and_wait)

    async def _claim_and_wait(self, claim: Claim, attempt: Attempt) -> AttemptResult[list[Message]]:
        once = await self._claim_or_replay(claim, attempt)
        self.has_claimed.set()
        await self.go_on.wait()
        return once


async def receive_repeatably(api: ApiServer) -> list[Any]:
    """Receive with an Idempotency-Key, so that a repeat gets the same messages."""
    path, key = "/queues/orders/messages/receive", {"Idempotency-Key": "r-1"}
    return (await api.request_json("POST", path, {}, headers=key))["messages"]


@pytest.mark.behaviour("S1.52")
@pytest.mark.parametrize("late", ["abandon", "dead-letter", "defer", "renew", "lock ends", "client leaves"])
async def test_a_settlement_that_overtakes_the_answer_of_its_receive_counts(api: ApiServer, late: str) -> None:
    """A repeat on another server has the token first. What the slow answer brings later cannot undo the settlement."""
    await api.send(body="once")
    slow = SlowServer(api)
    receiving = asyncio.ensure_future(receive_repeatably(slow.api))
    await slow.has_claimed.wait()
    (early,) = await receive_repeatably(api)
    assert (await api.settle(early, "complete")).json()["replayed"] is False
    if late == "client leaves":
        receiving.cancel()
    slow.go_on.set()
    (answer,) = await asyncio.gather(receiving, return_exceptions=True)
    if isinstance(answer, BaseException):
        assert late == "client leaves", answer
    else:
        (answered,) = answer
        assert answered["lock_token"] == early["lock_token"]
        assert (await slow.api.settle(answered, "complete")).json()["replayed"] is True
        if late != "lock ends":
            problem(await slow.api.settle(answered, late), 409, "already-settled")
    await api.advance_time(31)
    assert await api.counts() == {}
    assert await api.receive() == await receive_repeatably(slow.api) == []


@pytest.mark.behaviour("S1.86")
async def test_a_message_that_returns_may_follow_later_ones(api: ApiServer) -> None:
    for body in range(3):
        await api.send(body=body)
    delivered: list[Any] = []
    first, second = await api.receive(max_messages=2)
    delivered += [first["body"], second["body"]]
    await api.settle(first, "abandon")
    delivered += [message["body"] for message in await api.receive(max_messages=9)]
    assert delivered == [0, 1, 0, 2]


@pytest.mark.behaviour("S1.67")
async def test_every_redelivered_message_is_marked(api: ApiServer) -> None:
    for body in range(4):
        await api.send(body=body)
    first = await api.receive(max_messages=4)
    assert [message["redelivered"] for message in first] == [False] * 4
    await api.settle(first[0], "abandon")
    await api.settle(first[1], "abandon", count=False)
    await api.settle(first[2], "defer")
    await api.advance_time(31)
    await api.send(body=4)
    again = await api.receive(max_messages=9)
    assert {message["body"]: message["redelivered"] for message in again} == {0: True, 1: True, 3: True, 4: False}
    (deferred,) = await api.receive(sequence_numbers=[first[2]["sequence_number"]])
    assert deferred["redelivered"] is True


@pytest.mark.behaviour("S1.71")
async def test_browsing_shows_what_matches_and_changes_nothing(api: ApiServer) -> None:
    for body in range(6):
        await api.send(body=body, priority=body)
    await api.receive(max_messages=2)
    before = await browsed_messages(api)
    counts = await api.counts()
    assert [message["body"] for message in before] == list(range(6))
    for _ in range(3):
        assert [message["body"] for message in await browsed_messages(api, filter="message.priority >= 4")] == [4, 5]
        assert [message["body"] for message in await browsed_messages(api, filter="message.state == 'available'")] == [
            0,
            1,
            2,
            3,
        ]
        assert await browsed_messages(api, filter="message.priority > 9") == []
    assert await browsed_messages(api) == before
    assert await api.counts() == counts
    assert [message["redelivered"] for message in await api.receive(max_messages=9)] == [False] * 4


@pytest.mark.behaviour("S1.76")
async def test_a_receiver_with_a_filter_gets_only_matching_messages(api: ApiServer) -> None:
    for region in ("eu", "us", "eu"):
        await api.send(properties={"region": region})
    accepted = await api.receive(max_messages=9, filter="message.properties.region == 'eu'")
    assert [message["sequence_number"] for message in accepted] == [1, 3]
    (left,) = await api.receive(max_messages=9)
    assert (left["sequence_number"], left["delivery_count"], left["redelivered"]) == (2, 1, False)


@pytest.mark.behaviour("S2.34")
async def test_a_delivery_that_ends_without_a_failure_raises_one_count_alone(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"max_delivery_count": 2})
    await api.send()
    counted = []
    for count in (False, False, True, False):
        (message,) = await api.receive()
        await api.settle(message, "abandon", count=count)
        (stands,) = await browsed_messages(api)
        counted.append((stands["delivery_count"], stands["failure_count"], stands["state"]))
    assert counted == [(1, 0, "available"), (2, 0, "available"), (3, 1, "available"), (4, 1, "available")]


@pytest.mark.behaviour("S2.34")
async def test_a_lock_that_ends_by_time_raises_both_counts(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"lock_duration_seconds": 10})
    await api.send()
    await api.receive()
    (locked,) = await browsed_messages(api)
    await api.advance_time(11)
    (returned,) = await browsed_messages(api)
    assert (locked["delivery_count"], locked["failure_count"]) == (1, 0)
    assert (returned["delivery_count"], returned["failure_count"], returned["state"]) == (1, 1, "available")
    assert returned["last_failure"] == "lock_expired"
