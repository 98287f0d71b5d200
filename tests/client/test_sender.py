"""Senders: how much is on its way, what a batch carries, and what becomes of each message."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import pytest
from peeklock_client import Client, InDoubt, NewMessage, Queue, Refusal, RetryLimits, Sender
from peeklock_client.errors import InvalidRequest, NotSent, NotSerializable, PeeklockError, WrongEventLoop
from peeklock_client.generated import requests
from peeklock_client.messages import entry
from peeklock_client.sender import MAX_REPORTED, weight_of

from tests.client.virtual_loop import run_virtually


@dataclass
class Server:
    """Stores batches after a second, and refuses those with a body that is not allowed."""

    batches: list[list[Any]] = field(default_factory=list)
    is_lost: bool = False
    most_results: int = 1000

    async def answer(self, request: httpx.Request) -> httpx.Response:
        bodies = [message["body"] for message in msgspec.json.decode(request.content)["messages"]]
        self.batches.append(bodies)
        await asyncio.sleep(1)
        if self.is_lost:
            raise httpx.ReadError("connection reset")
        if "bad" in bodies:
            problem = {"type": "", "title": "", "status": 422, "detail": "Bad.", "code": "invalid-request"}
            return httpx.Response(422, json={**problem, "tracking_id": "", "retryable": False})
        result = {"result": "sent", "enqueued_at": "2026-01-01T00:00:00Z", "state": "available", "duplicate": False}
        results = [{**result, "sequence_number": 1, "message_id": str(body)} for body in bodies]
        return httpx.Response(201, json={"results": results[: self.most_results]})

    def queue(self) -> Queue:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self.answer))
        return Client("http://peeklock.test", http=http, retries=RetryLimits(attempts=1)).queue("orders")


@pytest.mark.behaviour("S3.7")
def test_a_message_waits_while_as_many_as_allowed_are_under_way() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with Sender(Server().queue(), max_in_flight=10) as sender:
            for number in range(10):
                await sender.post(number)
            assert loop.time() == 0
            await sender.post(10)
            assert loop.time() >= 1

    run_virtually(scenario())


def test_a_message_waits_while_as_many_bytes_as_allowed_are_under_way() -> None:
    async def scenario() -> None:
        async with Sender(Server().queue(), max_bytes=3 * weight_of(NewMessage("x" * 900))) as sender:
            for _ in range(3):
                await sender.post("x" * 900)
            assert asyncio.get_running_loop().time() == 0
            await sender.post("x" * 900)
            assert asyncio.get_running_loop().time() >= 1

    run_virtually(scenario())


async def test_a_sender_takes_messages_in_its_block_only() -> None:
    with pytest.raises(NotSent, match="inside its `async with` block"):
        await Sender(Server().queue()).post(1)


async def test_a_sender_takes_messages_in_its_event_loop_only() -> None:
    server = Server()
    async with Sender(server.queue()) as sender:
        with pytest.raises(WrongEventLoop, match="Nothing was sent"):
            await asyncio.to_thread(asyncio.run, sender.post(1))
    assert not server.batches


def test_what_gathers_during_a_request_goes_with_the_next() -> None:
    server = Server()

    async def scenario() -> None:
        async with Sender(server.queue()) as sender:
            await sender.post(0)
            await asyncio.sleep(0.5)
            for number in range(1, 6):
                await sender.post(number)

    run_virtually(scenario())
    assert server.batches == [[0], [1, 2, 3, 4, 5]]


@pytest.mark.parametrize("body", [b"x" * 3000, bytearray(3000), "ü" * 3000, {"a": [1, 2.5, None]}, 17], ids=type)
def test_a_message_weighs_about_as_much_as_in_its_request(body: Any) -> None:
    message = NewMessage(body, properties={"region": "eu" * 100})
    in_request = msgspec.json.encode(entry(requests.SendEntry, message, queue="orders"))
    assert 0 < len(in_request) - weight_of(message) < 150


def test_a_batch_is_bounded_in_bytes() -> None:
    server = Server()

    async def scenario() -> None:
        async with Sender(server.queue()) as sender:
            for halves in (1, 1, 4, 2, 2):
                await sender.post("x" * (halves << 19))

    run_virtually(scenario())
    assert [len(batch) for batch in server.batches] == [3, 2]


def test_a_batch_is_bounded_in_number() -> None:
    server = Server()

    async def scenario() -> None:
        async with Sender(server.queue(), max_in_flight=2500) as sender:
            for number in range(2500):
                await sender.post(number)

    run_virtually(scenario())
    assert [len(batch) for batch in server.batches] == [1000, 1000, 500]


@pytest.mark.behaviour("S3.8")
def test_each_message_of_a_refused_batch_has_its_own_outcome() -> None:
    server = Server()

    async def scenario() -> None:
        async with Sender(server.queue()) as sender:
            pending = [await sender.post(body) for body in ("a", "bad", "b")]
            outcomes = await asyncio.gather(*pending, return_exceptions=True)
        assert [getattr(outcome, "message_id", type(outcome)) for outcome in outcomes] == ["a", InvalidRequest, "b"]

    run_virtually(scenario())
    assert server.batches == [["a", "bad", "b"], ["a"], ["bad"], ["b"]]


@pytest.mark.behaviour("S3.8")
def test_an_error_that_was_not_awaited_is_raised_at_the_end() -> None:
    async def scenario() -> None:
        async with Sender(Server().queue()) as sender:
            await sender.post("bad")

    with pytest.raises(ExceptionGroup, match="1 message was not sent; the first because: Bad") as group:
        run_virtually(scenario())
    assert isinstance(group.value.exceptions[0], Refusal)


def test_an_error_that_was_awaited_late_is_not_raised_again() -> None:
    async def scenario() -> None:
        async with Sender(Server().queue()) as sender:
            pending = [await sender.post("bad") for _ in range(2 * MAX_REPORTED)]
            await asyncio.sleep(3600 - 600)
            for one in pending:
                with pytest.raises(InvalidRequest):
                    await one

    run_virtually(scenario())


def test_a_block_that_raises_names_how_many_messages_were_not_sent() -> None:
    async def scenario() -> None:
        async with Sender(Server().queue()) as sender:
            await sender.post("bad")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as error:
        run_virtually(scenario())
    [note] = error.value.__notes__
    assert note.startswith("1 message was not sent; the first because: Bad")


@pytest.mark.behaviour("S3.8")
def test_each_message_has_an_outcome_when_the_end_is_cancelled() -> None:
    outcomes: list[Any] = []

    async def scenario() -> None:
        async def send_all() -> None:
            async with Sender(Server().queue(), max_in_flight=2) as sender:
                first = await sender.post("under way")
                await asyncio.sleep(0.5)
                tasks.extend(
                    asyncio.ensure_future(one) for one in (first, await sender.post("waiting"), sender.post("room"))
                )
                await asyncio.sleep(0)

        tasks: list[asyncio.Future[Any]] = []
        sending = asyncio.ensure_future(send_all())
        await asyncio.sleep(0.7)
        sending.cancel()
        await asyncio.wait([sending])
        outcomes.extend(await asyncio.gather(*tasks, return_exceptions=True))

    run_virtually(scenario())
    assert [type(outcome) for outcome in outcomes] == [InDoubt, NotSent, NotSent]


def test_a_request_that_fails_in_another_way_is_a_doubt() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        raise RuntimeError("no such proxy")

    async def scenario() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        async with Sender(Client("http://peeklock.test", http=http).queue("orders")) as sender:
            with pytest.raises(InDoubt, match="no such proxy"):
                await sender.send(1)

    run_virtually(scenario())


def test_the_end_of_a_sender_counts_all_errors_and_keeps_a_bounded_number() -> None:
    async def scenario() -> None:
        async with Sender(Server().queue()) as sender:
            for _ in range(MAX_REPORTED + 50):
                await sender.post("bad")

    with pytest.raises(ExceptionGroup, match=f"{MAX_REPORTED + 50} messages were not sent") as group:
        run_virtually(scenario())
    assert len(group.value.exceptions) == MAX_REPORTED


def test_an_error_of_the_block_is_raised_and_not_those_of_its_messages() -> None:
    async def scenario() -> None:
        async with Sender(Server().queue()) as sender:
            await sender.post("bad")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_virtually(scenario())


def test_a_task_that_is_cancelled_while_it_waits_for_an_outcome_stops_no_message() -> None:
    server = Server()

    async def scenario() -> None:
        async with Sender(server.queue()) as sender:
            waiting = asyncio.ensure_future(sender.send("a"))
            await asyncio.sleep(0.5)
            waiting.cancel()
            sent = await sender.send("b")
        assert (waiting.cancelled(), sent.message_id) == (True, "b")

    run_virtually(scenario())
    assert server.batches == [["a"], ["b"]]


def test_a_lost_answer_leaves_each_message_in_doubt() -> None:
    async def scenario() -> None:
        async with Sender(Server(is_lost=True).queue()) as sender:
            with pytest.raises(InDoubt):
                await sender.send(1)

    run_virtually(scenario())


def test_a_message_that_cannot_be_sent_fails_alone() -> None:
    async def scenario() -> None:
        async with Sender(Server().queue()) as sender:
            pending = [await sender.post(body, subject=subject) for body, subject in (("a", "x"), ("b", "\udcff"))]
            outcomes = await asyncio.gather(*pending, return_exceptions=True)
        assert [getattr(outcome, "message_id", type(outcome)) for outcome in outcomes] == ["a", NotSerializable]

    run_virtually(scenario())


def test_an_answer_without_a_result_for_each_message_leaves_a_doubt() -> None:
    async def scenario() -> None:
        async with Sender(Server(most_results=1).queue()) as sender:
            pending = [await sender.post(body) for body in ("a", "b")]
            outcomes = await asyncio.gather(*pending, return_exceptions=True)
        assert [getattr(outcome, "message_id", type(outcome)) for outcome in outcomes] == ["a", InDoubt]

    run_virtually(scenario())


def test_a_cancelled_end_leaves_no_message_without_an_outcome() -> None:
    server = Server()

    async def send(sender: Sender, number: int) -> str:
        try:
            return (await sender.send(number)).message_id
        except PeeklockError as error:
            return type(error).__name__

    async def scenario() -> None:
        sends = list[asyncio.Task[str]]()

        async def block() -> None:
            async with Sender(server.queue(), max_in_flight=3) as sender:
                sends.append(asyncio.ensure_future(send(sender, 0)))
                await asyncio.sleep(0.1)
                sends.extend(asyncio.ensure_future(send(sender, number)) for number in range(1, 5))
                await asyncio.sleep(0.1)

        blocked = asyncio.ensure_future(block())
        await asyncio.sleep(0.5)
        blocked.cancel()
        await asyncio.wait([blocked])
        async with asyncio.timeout(1):
            outcomes = await asyncio.gather(*sends)
        assert outcomes == ["InDoubt", *["NotSent"] * 4]

    run_virtually(scenario())
    assert server.batches == [[0]]


@pytest.mark.parametrize("commits", [True, False])
async def test_a_sender_of_a_topic_publishes_in_order_at_once_or_by_a_commit(client: Client, commits: bool) -> None:
    topic = client.topic(f"topic-{uuid4().hex}")
    await client.api.put_topic(topic.name, requests.TopicSettingsBody())
    copies = await topic.subscribe("all")
    async with Sender(topic) as sender:
        pending = [await sender.post(number) for number in range(5)]
    assert [(await one).matched for one in pending] == [1] * 5
    transaction = await client.transaction()
    async with Sender(topic, transaction=transaction) as sender:
        await sender.post(5)
    await (transaction.commit() if commits else transaction.rollback())
    bodies = [message.body for message in await copies.receive_and_delete(10)]
    assert bodies == [*range(6 if commits else 5)]


async def test_messages_keep_their_order_on_a_real_server(any_queue: Queue) -> None:
    async with Sender(any_queue, max_in_flight=100) as sender:
        for number in range(1000):
            await sender.post(number)
    bodies = [message.body for message in await any_queue.receive_and_delete(1000)]
    assert bodies == [*range(1000)]


@pytest.mark.parametrize("commits", [True, False])
async def test_messages_of_a_sender_in_a_transaction_are_stored_by_its_commit(
    any_client: Client, any_queue: Queue, commits: bool
) -> None:
    transaction = await any_client.transaction()
    async with Sender(any_queue, transaction=transaction) as sender:
        for number in range(1500):
            await sender.post(number)
    assert (await any_queue.status()).counts.available == 0
    await (transaction.commit() if commits else transaction.rollback())
    assert (await any_queue.status()).counts.available == (1500 if commits else 0)
