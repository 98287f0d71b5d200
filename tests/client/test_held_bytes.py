"""The bytes of the messages that a worker holds, in virtual time: a bound for many messages, and progress with large ones."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest
from peeklock_client import SubscriberOptions

from tests.client.virtual_broker import Broker, run_worker

SIZE = 10_000


class HeldMessages:
    """A broker that notes, with each answer to a receive, which messages its worker holds."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.held = set[str]()
        self.most_held = list[int]()

    async def answer(self, request: httpx.Request) -> httpx.Response:
        response = await self.broker.answer(request)
        settlements = msgspec.json.decode(request.content).get("settlements", [])
        self.held -= {one["lock_token"] for one in settlements if one["action"] != "renew"}
        self.held |= {one["lock_token"] for one in msgspec.json.decode(response.content).get("messages", [])}
        self.most_held.append(len(self.held))
        return response


async def work_for_a_second(body: Any) -> None:
    await asyncio.sleep(1)


@pytest.mark.behaviour("S2.15")
@pytest.mark.parametrize("body", ["x" * SIZE, {"text": "x" * SIZE}], ids=type)
def test_no_more_bytes_are_in_hand_than_allowed(body: Any) -> None:
    server = HeldMessages(Broker(stored=200, fields={"body": body}, most_in_answer=4))
    report = run_worker(server.answer, work_for_a_second, max_workers=50, max_bytes=10 * SIZE)
    assert (report.completed, max(server.most_held)) == (200, 10)


def test_the_first_answer_alone_may_exceed_the_bytes() -> None:
    server = HeldMessages(Broker(stored=100, fields={"body": "x" * SIZE}, most_in_answer=8))
    report = run_worker(server.answer, work_for_a_second, max_workers=50, max_bytes=5 * SIZE)
    assert (report.completed, server.most_held[0], max(server.most_held[1:])) == (100, 8, 5)


def test_messages_larger_than_all_that_is_allowed_are_processed_one_at_a_time() -> None:
    server = HeldMessages(Broker(stored=20, fields={"body": "x" * SIZE}, most_in_answer=1))
    report = run_worker(server.answer, work_for_a_second, max_workers=50, max_bytes=SIZE // 2)
    assert (report.completed, max(server.most_held)) == (20, 1)


def test_messages_of_one_group_count_while_they_wait_for_each_other() -> None:
    broker = Broker(stored=20, fields={"body": "x" * SIZE, "group_id": "one"}, most_in_answer=1)
    server = HeldMessages(broker)
    report = run_worker(server.answer, work_for_a_second, max_workers=50, max_bytes=3 * SIZE)
    assert (report.completed, max(server.most_held)) == (20, 3)


def test_after_large_messages_small_ones_come_in_batches_again() -> None:
    broker = Broker(stored=8, fields={"body": "x" * SIZE})

    async def answer(request: httpx.Request) -> httpx.Response:
        response = await broker.answer(request)
        if broker.fields and not broker.stored:
            broker.stored, broker.fields = 200, {}
        return response

    report = run_worker(answer, work_for_a_second, max_workers=100, max_bytes=5 * SIZE)
    asked = [body["max_messages"] for _, body in broker.of_kind("receive")]
    assert (report.completed, min(asked), asked[-1]) == (208, 5, 50)


def test_as_many_messages_are_asked_for_as_fit_if_all_are_as_large_as_the_last() -> None:
    broker = Broker(stored=100)

    async def answer(request: httpx.Request) -> httpx.Response:
        response = await broker.answer(request)
        content = msgspec.json.decode(response.content)
        for one in content.get("messages", []):
            one["body"] = "x" * (SIZE if one["sequence_number"] % 5 == 0 else 1)
        return httpx.Response(200, json=content)

    report = run_worker(answer, work_for_a_second, max_workers=100, fetch_batch_size=20, max_bytes=7 * SIZE)
    asked = [body["max_messages"] for _, body in broker.of_kind("receive")]
    assert (report.completed, asked[0]) == (100, 20)
    # The first answer has four large messages, so there is room for two more that are as large.
    assert asked[1] == 2


def test_a_worker_needs_a_byte() -> None:
    with pytest.raises(ValueError, match="max_bytes >= 1"):
        SubscriberOptions(max_bytes=0)
