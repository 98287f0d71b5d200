"""Workers with a `receiver_id` of their own: what they held comes back after a restart, and nothing in hand is recovered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec
import pytest
from peeklock_client import AckPolicy, Client, Message, ReceiveContext, Worker
from peeklock_client.generated import requests

from tests.client.conftest import new_queue
from tests.client.virtual_broker import Broker, client_of, message, run_worker
from tests.client.virtual_loop import run_virtually


class HoldingBroker:
    """A broker that knows which messages each receiver holds, and gives them out again under new tokens."""

    def __init__(self, stored: int = 0, held: Sequence[int] = ()) -> None:
        self.broker = Broker(stored)
        self.held: dict[str, dict[str, dict[str, Any]]] = {"w": {f"{number}.t": message(number) for number in held}}
        self.recovered: list[tuple[float, list[int]]] = []
        self.to_lose = 0
        self.generation = 0

    async def answer(self, request: httpx.Request) -> httpx.Response:
        body, kind = msgspec.json.decode(request.content), request.url.path.rsplit("/", 1)[-1]
        for one in body.get("settlements", []):
            for held in self.held.values():
                held.pop(one["lock_token"], None)
        if kind == "recover":
            return self._recover(body)
        response = await self.broker.answer(request)
        if kind == "receive":
            received = {one["lock_token"]: one for one in response.json()["messages"]}
            self.held.setdefault(body["receiver_id"], {}).update(received)
            if received and self.to_lose:
                self.to_lose -= 1
                raise httpx.ReadError("cut off")
        return response

    def _recover(self, body: dict[str, Any]) -> httpx.Response:
        self.generation += 1
        held = self.held.setdefault(body["receiver_id"], {})
        some = [held.pop(token) for token in [*held][: body.get("max_messages", 1000)]]
        for one in some:
            one["lock_token"] = f"{one['sequence_number']}.{self.generation}"
            held[one["lock_token"]] = one
        self.recovered.append((asyncio.get_running_loop().time(), [one["sequence_number"] for one in some]))
        return httpx.Response(200, json={"messages": some})


def worked(broker: HoldingBroker, seconds: float, until: float, **options: Any) -> list[int]:
    """Let a worker with the id `w` run until a time, and return the bodies that its handler has seen."""
    seen = list[int]()

    async def scenario() -> None:
        worker = Worker(client_of(broker.answer, attempts=1))

        @worker.on("orders", receiver_id="w", **options)
        async def handle(body: int) -> None:
            seen.append(body)
            await asyncio.sleep(seconds)

        await worker.start()
        await asyncio.sleep(until)
        report = await worker.stop()
        assert report.lock_lost == 0

    run_virtually(scenario())
    return seen


def test_a_worker_begins_with_what_it_held_before() -> None:
    broker = HoldingBroker(stored=2, held=range(101, 126))
    seen = worked(broker, 1, 60, fetch_batch_size=10, wait_seconds=5)
    assert seen == [*range(101, 126), 1, 2]
    assert {body["receiver_id"] for _, body in broker.broker.of_kind("receive")} == {"w"}
    assert broker.held == {"w": {}}


def test_a_worker_recovers_a_lost_answer_once_it_is_idle() -> None:
    broker = HoldingBroker(stored=10)

    async def scenario() -> None:
        worker, seen = Worker(client_of(broker.answer, attempts=1)), list[int]()

        @worker.on("orders", receiver_id="w", max_workers=1, fetch_batch_size=10, wait_seconds=1)
        async def handle(body: int) -> None:
            seen.append(body)
            await asyncio.sleep(1)

        await worker.start()
        broker.to_lose, broker.broker.stored = 1, 3
        await asyncio.sleep(60)
        report = await worker.stop()
        # The broker keeps no released message: those of the lost answer are given back, and nothing else.
        assert seen == [*range(1, 11)]
        assert (report.completed, report.handed_back, report.lock_lost) == (10, 3, 0)

    run_virtually(scenario())
    [(at, numbers)] = [(at, numbers) for at, numbers in broker.recovered if numbers]
    assert (at > 10, numbers) == (True, [11, 12, 13])


def test_messages_that_a_handler_leaves_unsettled_stay_with_their_program() -> None:
    """Neither the recovery of earlier messages, nor that of a lost answer, nor a stop takes a token of theirs."""
    broker = HoldingBroker(stored=2, held=[101, 102])

    async def scenario() -> None:
        worker, tokens = Worker(client_of(broker.answer, attempts=1)), list[str]()

        @worker.on("orders", receiver_id="w", ack_policy=AckPolicy.MANUAL, wait_seconds=1, fetch_batch_size=2)
        async def handle(context: ReceiveContext[int]) -> None:
            if context.message.body == 1:
                await context.complete()
                return
            tokens.append(context.lock_token)

        await worker.start()
        await asyncio.sleep(5)
        broker.to_lose, broker.broker.stored = 1, 1
        await asyncio.sleep(60)
        report = await worker.stop()
        assert (report.completed, report.handed_back, report.lock_lost) == (1, 0, 0)
        assert tokens == ["101.1", "102.1", "2.t"]
        assert [*broker.held["w"]] == [*tokens, "3.t"]

    run_virtually(scenario())


def test_messages_whose_receive_is_faulted_are_not_recovered_for_ever() -> None:
    broker, seen = HoldingBroker(held=[101, 102]), list[int]()

    async def handle(context: ReceiveContext[int]) -> None:
        seen.append(context.message.body)
        context.fault()

    run_worker(broker.answer, handle, receiver_id="w")
    assert seen == [101, 102] * 2


@pytest.mark.parametrize(("process", "receiver_id"), [(1, "w"), (2, "w-2"), (3, "w-3")])
def test_each_process_has_an_id_of_its_own(process: int, receiver_id: str) -> None:
    broker = HoldingBroker()

    async def scenario() -> None:
        worker = Worker(client_of(broker.answer), process=process)

        @worker.on("orders", receiver_id="w")
        async def handle(body: int) -> None: ...

        await worker.start()
        await worker.stop()

    run_virtually(scenario())
    assert {body["receiver_id"] for _, body in broker.broker.of_kind("receive")} == {receiver_id}


def test_two_handlers_of_a_queue_do_not_share_an_id() -> None:
    worker = Worker()
    worker.on("a", "b", receiver_id="w")(print_body)
    worker.on("c", receiver_id="w")(print_body)
    worker.on("b", receiver_id="v")(print_body)
    with pytest.raises(ValueError, match="queue b have the receiver_id 'w'"):
        worker.on("b", receiver_id="w")(print_body)


async def print_body(body: int) -> None:
    print(body)


# ---- on a real server ------------------------------------------------------------------------------------------------


async def test_a_worker_gets_its_messages_of_a_queue_on_request_back_after_a_restart(client: Client) -> None:
    queue, seen = await new_queue(client), asyncio.Queue[Message[int]]()
    await queue.create(requests.QueueSettingsBody(redelivery="on_request"))
    await queue.send_batch([*range(3)])
    ended = requests.ReceiveMessages(10, receiver_id="w")
    assert len((await client.api.receive_messages(queue.name, ended)).messages) == 3
    worker = Worker(client)

    @worker.on(queue.name, receiver_id="w")
    async def handle(message: Message[int]) -> None:
        seen.put_nowait(message)

    async with worker.lifespan(), asyncio.timeout(60):
        messages = [await seen.get() for _ in range(3)]
    assert [(one.body, one.delivery_count, one.redelivered) for one in messages] == [(n, 2, True) for n in range(3)]
    assert worker.report.completed == 3


async def test_a_second_worker_with_the_same_id_takes_the_messages_of_the_first(client: Client) -> None:
    queue, begun = await new_queue(client), asyncio.Queue[str]()
    await queue.create(requests.QueueSettingsBody(redelivery="on_request"))
    await queue.send(1)

    def worker_of(name: str, seconds: float) -> Worker:
        worker = Worker(client)

        @worker.on(queue.name, receiver_id="w", lock_seconds=2)
        async def handle(body: int) -> None:
            begun.put_nowait(name)
            await asyncio.sleep(seconds)

        return worker

    first, second = worker_of("first", 3600), worker_of("second", 0)
    async with asyncio.timeout(60), first.lifespan():
        assert await begun.get() == "first"
        async with second.lifespan():
            assert await begun.get() == "second"
        await first.stop(0)
    assert (first.report.lock_lost, first.report.completed, second.report.completed) == (1, 0, 1)
