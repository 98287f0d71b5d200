"""Receives whose answers are lost: a worker soon returns their messages to the queue, without a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import msgspec
import pytest
from peeklock_client import Client, Message, RetryLimits, Worker
from peeklock_client.generated import requests
from peeklock_client.worker.missed_messages import LATE_SECONDS
from peeklock_client.worker.report import WorkerReport

from tests.client.conftest import new_queue
from tests.client.virtual_broker import Broker, client_of, message, refused
from tests.client.virtual_loop import run_virtually

WAIT = 20


class LostReceives:
    """A broker that loses the answers of the next receives, each with a message."""

    def __init__(self) -> None:
        self.broker = Broker(stored=0)
        self.to_lose = 0
        self.held: dict[str, list[dict[str, Any]]] = {}
        self.number = 100

    async def answer(self, request: httpx.Request) -> httpx.Response:
        body, kind = msgspec.json.decode(request.content), request.url.path.rsplit("/", 1)[-1]
        if kind == "receive" and self.to_lose:
            self.to_lose -= 1
            self.broker.requests.append((asyncio.get_running_loop().time(), kind, body))
            self.lock(body["receiver_id"])
            raise httpx.ReadError("cut off")
        if kind == "recover":
            self.broker.missed = self.held.pop(body["receiver_id"], [])
        return await self.broker.answer(request)

    def lock(self, receiver_id: str) -> None:
        self.number += 1
        self.held.setdefault(receiver_id, []).append(message(self.number))


async def started(answer: Callable[[httpx.Request], Any], handler_seconds: float = 0) -> Worker:
    """Return a worker that has received once, and now waits for messages."""
    worker = Worker(client_of(answer, attempts=1))

    @worker.on("orders", wait_seconds=WAIT)
    async def handle(body: int) -> None:
        await asyncio.sleep(handler_seconds)

    await worker.start()
    return worker


def test_the_messages_of_a_lost_answer_are_returned_before_the_next_receive() -> None:
    lost = LostReceives()

    async def scenario() -> WorkerReport:
        worker = await started(lost.answer)
        lost.to_lose = 1
        await asyncio.sleep(1)
        return await worker.stop()

    report = run_virtually(scenario())
    assert (report.received, report.handed_back, lost.held) == (1, 1, {})
    given_back = [one for _, body in lost.broker.of_kind("settle") for one in body["settlements"]]
    assert [(one["lock_token"], one["action"]) for one in given_back] == [("101.t", "release")]
    kinds = [kind for _, kind, _ in lost.broker.requests]
    assert kinds[:5] == ["receive", "receive", "recover", "settle", "recover"]


def test_a_receive_that_takes_effect_late_is_recovered_too() -> None:
    lost = LostReceives()

    async def scenario() -> None:
        worker = await started(lost.answer)
        lost.to_lose = 1
        await asyncio.sleep(5)
        [(_, asked), *_] = lost.broker.of_kind("recover")
        lost.lock(asked["receiver_id"])
        await asyncio.sleep(2 * WAIT + LATE_SECONDS)
        assert worker.report.handed_back == 2
        recoveries = len(lost.broker.of_kind("recover"))
        await asyncio.sleep(600)
        assert len(lost.broker.of_kind("recover")) == recoveries, "recoveries end"
        await worker.stop()

    run_virtually(scenario())


def test_a_recovery_never_asks_for_messages_that_the_worker_holds() -> None:
    lost, held = LostReceives(), dict[str, str]()

    async def answer(request: httpx.Request) -> httpx.Response:
        response = await lost.answer(request)
        if request.url.path.endswith("/receive"):
            receiver_id = msgspec.json.decode(request.content)["receiver_id"]
            held.update({one["lock_token"]: receiver_id for one in response.json()["messages"]})
        return response

    async def scenario() -> None:
        lost.broker.stored = 3
        worker = await started(answer, handler_seconds=50)
        for _ in range(20):
            lost.to_lose, lost.broker.stored = 1, 2
            await asyncio.sleep(WAIT)
        await worker.stop()

    run_virtually(scenario())
    recovered = {body["receiver_id"] for _, body in lost.broker.of_kind("recover")}
    assert len(held) > 10
    assert recovered
    assert not recovered & set(held.values())


@pytest.mark.parametrize(("code", "returned"), [("lock-lost", 0), (None, 1)])
def test_a_failed_recovery_is_repeated_and_a_lost_message_is_not_returned(code: str | None, returned: int) -> None:
    lost, failures = LostReceives(), ["recover"]

    async def answer(request: httpx.Request) -> httpx.Response:
        kind = request.url.path.rsplit("/", 1)[-1]
        if kind in failures:
            failures.remove(kind)
            raise httpx.ReadError("cut off")
        if kind == "settle" and code is not None:
            tokens = [one["lock_token"] for one in msgspec.json.decode(request.content)["settlements"]]
            return httpx.Response(200, json={"results": [refused(token, 410, code) for token in tokens]})
        return await lost.answer(request)

    async def scenario() -> WorkerReport:
        worker = await started(answer)
        lost.to_lose = 1
        await asyncio.sleep(60)
        return await worker.stop()

    report = run_virtually(scenario())
    assert (report.received, report.handed_back, report.lock_lost) == (1, returned, 1 - returned)


# ---- on a real server ------------------------------------------------------------------------------------------------


class ForgettingTransport(httpx.AsyncBaseTransport):
    """Loses the answer of the first receive that has messages."""

    def __init__(self) -> None:
        self._transport = httpx.AsyncHTTPTransport()
        self.lost = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._transport.handle_async_request(request)
        if request.url.path.endswith("/receive") and not self.lost:
            self.lost = len(msgspec.json.decode(await response.aread())["messages"])
            if self.lost:
                raise httpx.ReadError("connection reset")
        return response

    async def aclose(self) -> None:
        await self._transport.aclose()


@pytest.fixture
async def forgetting(server_url: str) -> AsyncIterator[tuple[Client, ForgettingTransport]]:
    transport = ForgettingTransport()
    async with (
        httpx.AsyncClient(transport=transport) as http,
        Client(server_url, http=http, retries=RetryLimits(attempts=1)) as client,
    ):
        yield client, transport


@pytest.mark.parametrize("redelivery", ["automatic", "on_request"])
async def test_a_worker_processes_the_messages_of_a_lost_answer_before_their_locks_end(
    client: Client, forgetting: tuple[Client, ForgettingTransport], redelivery: Any
) -> None:
    queue, (losing, transport), seen = await new_queue(client), forgetting, asyncio.Queue[Message[int]]()
    await queue.create(requests.QueueSettingsBody(redelivery=redelivery, lock_duration_seconds=3600))
    worker = Worker(losing)

    @worker.on(queue.name)
    async def handle(message: Message[int]) -> None:
        seen.put_nowait(message)

    await worker.start()
    await queue.send_batch([*range(5)])
    try:
        async with asyncio.timeout(60):
            messages = [await seen.get() for _ in range(5)]
    finally:
        report = await worker.stop()
    assert transport.lost > 0
    assert sorted(one.body for one in messages) == [*range(5)]
    assert {one.failure_count for one in messages} == {0}
    assert (report.completed, report.handed_back) == (5, transport.lost)
