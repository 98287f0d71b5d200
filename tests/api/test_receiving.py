"""Receiving: the next messages, each under its own lock, or none if none arrives in time."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from app.domain.delivery import Claim
from app.domain.message import Message
from app.domain.queue import QueueStatus
from tests.api.api_server import ApiServer, pointers, problem
from tests.servers import TIMEOUT_SECONDS
from tests.virtual_clock import run_ready_tasks


@pytest.mark.behaviour("S0.3", "S3.13", "S3.16", "S2.2", "S2.12")
async def test_a_received_message_is_hidden_from_others(api: ApiServer) -> None:
    for body in ("first", "second"):
        await api.send(body=body)
    (first,) = await api.receive()
    assert (first["body"], first["state"], first["delivery_count"]) == ("first", "locked", 1)
    assert first["locked_until"] == "2027-01-15T08:00:30.000000Z"
    assert first["lock_remaining_ms"] == 30_000
    (second,) = await api.receive()
    assert second["body"] == "second"
    assert await api.receive() == []


async def test_a_message_tells_when_it_was_first_delivered(api: ApiServer) -> None:
    await api.send(body=1)
    assert "first_delivered_at" not in await api.request_json("GET", "/queues/orders/messages/1")
    for _ in range(2):
        (message,) = await api.receive()
        assert message["first_delivered_at"] == "2027-01-15T08:00:00.000000Z"
        await api.settle(message, "abandon")
        await api.advance_time(1)
    seen = await api.request_json("GET", "/queues/orders/messages/1")
    assert seen["first_delivered_at"] == message["first_delivered_at"]


async def test_a_filter_finds_messages_by_their_first_delivery(api: ApiServer) -> None:
    await api.send(body="tried")
    await api.settle(*await api.receive(), "abandon")
    await api.send(body="new")
    for time, found in (("08:00:00", []), ("08:00:01", ["tried"])):
        wanted = {"filter": f"message.first_delivered_at < timestamp('2027-01-15T{time}Z')"}
        page = await api.request_json("GET", "/queues/orders/messages", params=wanted)
        assert [message["body"] for message in page["items"]] == found


async def test_browsing_shows_a_locked_message_without_its_token(api: ApiServer) -> None:
    await api.send()
    await api.receive()
    seen = await api.request_json("GET", "/queues/orders/messages/1")
    assert seen["state"] == "locked"
    assert "lock_token" not in seen


@pytest.mark.behaviour("S0.4")
@pytest.mark.parametrize(("abandons", "refusal"), [(False, (410, "lock-lost")), (True, (409, "already-settled"))])
async def test_a_receive_that_has_lost_its_lock_leaves_no_trace(
    api: ApiServer, abandons: bool, refusal: tuple[int, str]
) -> None:
    """The message is as available as one that was never received, and every use of its token is refused."""
    await api.send()
    never_received = await api.request_json("GET", "/queues/orders/messages/1")
    (message,) = await api.receive()
    if abandons:
        await api.settle(message, "abandon", count=False)
    else:
        await api.advance_time(30)
    seen = await api.request_json("GET", "/queues/orders/messages/1")
    assert seen.keys() - never_received.keys() <= {"first_delivered_at", "last_failure"}
    assert seen["state"] == "available"
    assert await api.counts() == {"available": 1}
    for verb in ("renew", "complete", "dead-letter", "defer"):
        problem(await api.settle(message, verb), *refusal)
    assert await api.request_json("GET", "/queues/orders/messages/1") == seen


@pytest.mark.behaviour("S3.14")
async def test_the_queue_or_the_receiver_sets_the_lock_duration(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"lock_duration_seconds": 60})
    for _ in range(2):
        await api.send()
    (usual,) = await api.receive()
    (asked,) = await api.receive(lock_seconds=5)
    assert (usual["lock_remaining_ms"], asked["lock_remaining_ms"]) == (60_000, 5_000)


@pytest.mark.behaviour("S2.14")
async def test_messages_are_delivered_by_priority_and_then_in_order(api: ApiServer) -> None:
    for body, priority in (("a", 4), ("b", 9), ("c", 4), ("d", 0), ("e", 9)):
        await api.send(body=body, priority=priority)
    assert [message["body"] for message in await api.receive(max_messages=10)] == ["b", "e", "a", "c", "d"]


@pytest.mark.behaviour("S2.25")
async def test_concurrent_receivers_never_lock_the_same_message(api: ApiServer) -> None:
    for _ in range(30):
        await api.send()
    answers = await asyncio.gather(*(api.receive(max_messages=3) for _ in range(20)))
    numbers = [message["sequence_number"] for messages in answers for message in messages]
    assert sorted(numbers) == list(range(1, 31))


@pytest.mark.behaviour("S3.10", "S3.11")
async def test_receive_and_delete_leaves_nothing_to_settle(api: ApiServer) -> None:
    await api.send(body="gone")
    (message,) = await api.receive(mode="receive_and_delete")
    assert message["state"] == "ended"
    assert message["body"] == "gone"
    assert (message["lock_token"], message["lock_remaining_ms"]) == ("", 0)
    assert await api.counts() == {}
    await api.advance_time(3600)
    assert await api.receive() == []


async def test_deferred_messages_are_received_only_by_number(api: ApiServer) -> None:
    for body in ("a", "b"):
        await api.send(body=body)
    for message in await api.receive(max_messages=2):
        await api.settle(message, "defer")
    assert await api.receive(max_messages=2) == []
    assert [message["body"] for message in await api.receive(sequence_numbers=[2, 99, 1])] == ["b", "a"]


async def test_dead_letters_are_received_from_their_own_source(api: ApiServer) -> None:
    await api.send(body="bad")
    (message,) = await api.receive()
    await api.settle(message, "dead-letter", reason="bad_address", description="No such street.")
    assert await api.receive() == []
    (dead,) = await api.receive(source="dead_letter")
    assert (dead["dead_letter_reason"], dead["dead_letter_description"]) == ("bad_address", "No such street.")
    await api.settle(dead, "abandon")
    assert await api.counts() == {"dead_lettered": 1}


async def test_a_filter_selects_among_available_messages(api: ApiServer) -> None:
    for n in range(6):
        await api.send(body=n, properties={"odd": n % 2 == 1})
    odd = await api.receive(max_messages=10, filter="message.properties.odd && message.sequence_number > 2")
    assert [message["body"] for message in odd] == [3, 5]
    assert await api.receive(filter="message.properties.missing == 1") == []


@pytest.mark.parametrize(
    ("wanted", "pointer"),
    [
        ({"max_messages": 0}, "/max_messages"),
        ({"max_messages": 1001}, "/max_messages"),
        ({"wait_seconds": -1}, "/wait_seconds"),
        ({"lock_seconds": 0.5}, "/lock_seconds"),
        ({"lock_seconds": 43_201}, "/lock_seconds"),
        ({"mode": "peek"}, "/mode"),
        ({"source": "archive"}, "/source"),
        ({"sequence_numbers": []}, "/sequence_numbers"),
        ({"sequence_numbers": [0]}, "/sequence_numbers/0"),
        ({"sequence_numbers": [2**63]}, "/sequence_numbers/0"),
        ({"sequence_numbers": [1, 2, 1]}, "/sequence_numbers"),
        ({"sequence_numbers": [1], "filter": "true"}, "/filter"),
        ({"sequence_numbers": [1], "source": "dead_letter"}, "/source"),
        ({"filter": "message."}, "/filter"),
        ({"filter": "message.x.all(y, true)"}, "/filter"),
        ({"filter": "other == 1"}, "/filter"),
        ({"filter": "x" * 1025}, "/filter"),
        ({"receiver_id": ""}, "/receiver_id"),
        ({"settlements": [{"action": "complete"}] * 1001}, "/settlements"),
        ({"nonsense": 1}, "/nonsense"),
    ],
)
async def test_an_invalid_receive_claims_nothing(api: ApiServer, wanted: dict[str, Any], pointer: str) -> None:
    await api.send()
    answer = await api.request("POST", "/queues/orders/messages/receive", wanted)
    assert pointers(answer) == [pointer]
    assert await api.counts() == {"available": 1}


async def test_a_malformed_settlement_does_not_stop_the_receive(api: ApiServer) -> None:
    await api.send(body="first")
    await api.send(body="second")
    (first,) = await api.receive()
    settlements = [{"action": "explode"}, {"action": "complete", "lock_token": first["lock_token"]}]
    answer = await api.request_json("POST", "/queues/orders/messages/receive", {"settlements": settlements})
    assert [result["result"] for result in answer["settled"]] == ["refused", "settled"]
    assert [message["body"] for message in answer["messages"]] == ["second"]


async def test_a_receive_from_a_closed_or_missing_queue_is_refused(api: ApiServer) -> None:
    await api.send()
    await api.request_json("PATCH", "/queues/orders", {"status": "receive_disabled"})
    problem(await api.request("POST", "/queues/orders/messages/receive"), 403, "receive-disabled")
    problem(await api.request("POST", "/queues/nowhere/messages/receive"), 404, "queue-not-found")


class TestWaiting:
    """A receive waits for its first message, at most for the requested time and the cap of the server."""

    async def wait(self, api: ApiServer, *, seconds: float = 20, **headers: str) -> asyncio.Task[Any]:
        await api.request_json("PUT", "/queues/orders")
        wanted = {} if "Prefer" in headers else {"wait_seconds": seconds}
        task = asyncio.create_task(api.request_json("POST", "/queues/orders/messages/receive", wanted, headers=headers))
        await run_ready_tasks()
        assert not task.done()
        return task

    @pytest.mark.behaviour("S2.30")
    async def test_it_ends_when_a_message_arrives(self, api: ApiServer) -> None:
        waiting = await self.wait(api)
        await api.send(body="at last")
        assert (await waiting)["messages"][0]["body"] == "at last"

    async def test_it_ends_empty_when_the_time_is_over(self, api: ApiServer) -> None:
        waiting = await self.wait(api, seconds=20)
        await api.clock.advance(19.9)
        assert not waiting.done()
        await api.clock.advance(0.2)
        assert await waiting == {"messages": []}

    @pytest.mark.parametrize("prefer", ["respond-async, wait=10", "WAIT=10", 'wait="10"', 'Wait = "10" ; strict, foo'])
    async def test_a_header_may_set_the_wait(self, api: ApiServer, prefer: str) -> None:
        waiting = await self.wait(api, Prefer=prefer)
        await api.clock.advance(9.9)
        assert not waiting.done()
        await api.clock.advance(0.2)
        assert await waiting == {"messages": []}

    @pytest.mark.parametrize(("prefer", "applied"), [("respond-async, wait=10", "wait=10"), ("wait=9999", "wait=50")])
    async def test_the_answer_names_the_wait_of_the_header(self, api: ApiServer, prefer: str, applied: str) -> None:
        await api.request_json("PUT", "/queues/orders")
        for wanted, expected in (({}, applied), ({"wait_seconds": 20}, None)):
            waiting = asyncio.create_task(
                api.request("POST", "/queues/orders/messages/receive", wanted, headers={"Prefer": prefer})
            )
            await run_ready_tasks()
            await api.clock.advance(50.1)
            assert (await waiting).headers.get("preference-applied") == expected

    @pytest.mark.parametrize("prefer", ["nowait=10", "wait=10s", "wait=1.5", "wait", "foo=wait", "respond-async"])
    async def test_another_preference_sets_no_wait(self, api: ApiServer, prefer: str) -> None:
        await api.request_json("PUT", "/queues/orders")
        answer = await api.request("POST", "/queues/orders/messages/receive", {}, headers={"Prefer": prefer})
        assert (answer.json(), "preference-applied" in answer.headers) == ({"messages": []}, False)

    async def test_the_wait_may_be_in_a_second_header(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/orders")
        headers = [("Prefer", "respond-async"), ("Prefer", "wait=10")]
        waiting = asyncio.create_task(api.http.post("/v1/queues/orders/messages/receive", json={}, headers=headers))
        await run_ready_tasks()
        await api.clock.advance(10.1)
        assert (await waiting).headers["preference-applied"] == "wait=10"

    async def test_the_server_caps_it(self, api: ApiServer) -> None:
        waiting = await self.wait(api, seconds=100_000)
        await api.clock.advance(50.1)
        assert await waiting == {"messages": []}

    async def test_a_scheduled_message_ends_it_when_it_is_due(self, api: ApiServer) -> None:
        await api.send(body="due", delay_seconds=5)
        waiting = await self.wait(api)
        await api.advance_time(5)
        assert (await waiting)["messages"][0]["body"] == "due"

    async def test_an_abandoned_message_goes_to_a_waiting_receiver(self, api: ApiServer) -> None:
        await api.send(body="again")
        (message,) = await api.receive()
        waiting = await self.wait(api)
        await api.settle(message, "abandon")
        assert (await waiting)["messages"][0]["redelivered"] is True

    async def test_each_message_ends_one_wait(self, api: ApiServer) -> None:
        waiting = [await self.wait(api) for _ in range(3)]
        for n in range(3):
            await api.send(body=n)
        answers = await asyncio.gather(*waiting)
        assert sorted(answer["messages"][0]["body"] for answer in answers) == [0, 1, 2]

    async def test_a_stopping_server_ends_all_waits(self, api: ApiServer) -> None:
        waiting = await self.wait(api)
        api.middleware.is_draining = True
        api.broker.wait_queue.close()
        assert await waiting == {"messages": []}
        assert (await api.request("GET", "/queues/orders")).headers["connection"] == "close"

    async def test_waiting_receivers_are_counted(self, api: ApiServer) -> None:
        waiting = await self.wait(api)
        assert "\npeeklock_waiting_receivers 1.0\n" in (await api.http.get("/metrics")).text
        await api.send()
        await waiting
        assert "\npeeklock_waiting_receivers 0.0\n" in (await api.http.get("/metrics")).text


KEY = {"Idempotency-Key": "r-1"}


class TestIdempotencyKey:
    """A repeated receive returns the same messages under the same locks."""

    PATH = "/queues/orders/messages/receive"

    async def test_a_repeat_returns_the_same_messages(self, api: ApiServer) -> None:
        for _ in range(3):
            await api.send()
        first = await api.request("POST", self.PATH, {"max_messages": 2}, headers=KEY)
        again = await api.request("POST", self.PATH, {"max_messages": 2}, headers=KEY)
        assert again.json() == first.json()
        assert again.headers["idempotency-replayed"] == "true"
        assert {message["delivery_count"] for message in again.json()["messages"]} == {1}
        assert await api.counts() == {"available": 1, "locked": 2}

    async def test_a_message_settled_meanwhile_is_left_out(self, api: ApiServer) -> None:
        await api.send()
        first = await api.request_json("POST", self.PATH, {}, headers=KEY)
        await api.settle(first["messages"][0], "complete")
        assert await api.request_json("POST", self.PATH, {}, headers=KEY) == {"messages": []}

    async def test_another_request_with_the_same_key_is_refused(self, api: ApiServer) -> None:
        await api.send()
        await api.request("POST", self.PATH, {}, headers=KEY)
        answer = await api.request("POST", self.PATH, {"max_messages": 2}, headers=KEY)
        problem(answer, 422, "idempotency-key-reused")

    @pytest.mark.parametrize("wanted", [{"mode": "receive_and_delete"}, {"filter": "true"}, {"sequence_numbers": [1]}])
    async def test_a_key_is_only_accepted_with_a_plain_receive(self, api: ApiServer, wanted: Any) -> None:
        await api.send()
        answer = await api.request("POST", self.PATH, wanted, headers=KEY)
        assert pointers(answer) == ["#/header/Idempotency-Key"]
        assert await api.counts() == {"available": 1}


class TestSettlingFirst:
    """A worker needs one request per message: it settles the previous one and receives the next."""

    PATH = "/queues/orders/messages/receive"

    async def test_the_settlement_comes_before_the_receive(self, api: ApiServer) -> None:
        await api.send(body="once")
        (message,) = await api.receive()
        settlements = [{"action": "abandon", "lock_token": message["lock_token"]}]
        answer = await api.request_json("POST", "/queues/orders/messages/receive", {"settlements": settlements})
        assert answer["settled"][0]["outcome"] == "abandoned"
        assert answer["messages"][0]["body"] == "once"
        assert answer["messages"][0]["lock_token"] != message["lock_token"]

    async def test_a_refused_settlement_does_not_stop_the_receive(self, api: ApiServer) -> None:
        await api.send()
        settlements = [{"action": "complete", "lock_token": f"9.{'0' * 32}"}]
        answer = await api.request_json("POST", "/queues/orders/messages/receive", {"settlements": settlements})
        assert answer["settled"][0]["problem"]["code"] == "message-not-found"
        assert len(answer["messages"]) == 1

    @pytest.mark.parametrize(
        "wrong", [{"max_messages": 0}, {"filter": "message."}, {"sequence_numbers": [1], "filter": "true"}]
    )
    async def test_an_invalid_request_settles_nothing(self, api: ApiServer, wrong: Any) -> None:
        await api.send()
        (message,) = await api.receive()
        settlements = [{"action": "complete", "lock_token": message["lock_token"]}]
        for extra in ({}, {"headers": {"Idempotency-Key": ""}}):
            wanted = {"settlements": settlements, **({} if extra else wrong)}
            pointers(await api.request("POST", "/queues/orders/messages/receive", wanted, **extra))
        assert await api.counts() == {"locked": 1}

    async def test_a_refused_receive_settles_nothing(self, api: ApiServer) -> None:
        await api.send()
        (message,) = (await api.request("POST", self.PATH, {}, headers=KEY)).json()["messages"]
        wanted = {"settlements": [{"action": "complete", "lock_token": message["lock_token"]}]}
        problem(await api.request("POST", self.PATH, wanted, headers=KEY), 422, "idempotency-key-reused")
        assert await api.counts() == {"locked": 1}
        api.broker.queue_cache.clear()
        queue = await api.broker.queue_cache.by_name("orders")
        await api.broker.store.queues.change(queue, replace(queue.settings, status=QueueStatus.RECEIVE_DISABLED))
        api.broker.queue_cache.clear()
        problem(await api.request("POST", self.PATH, wanted), 403, "receive-disabled")
        assert await api.counts() == {"locked": 1}

    async def test_a_repeat_returns_its_settlements_and_messages_again(self, api: ApiServer) -> None:
        await api.send()
        (message,) = await api.receive()
        await api.send()
        wanted = {"settlements": [{"action": "complete", "lock_token": message["lock_token"]}]}
        first = await api.request_json("POST", self.PATH, wanted, headers=KEY)
        again = await api.request_json("POST", self.PATH, wanted, headers=KEY)
        assert again["messages"] == first["messages"]
        assert (first["settled"][0]["replayed"], again["settled"][0]["replayed"]) == (False, True)


class TestClientDisconnects:
    """A client that disconnects before the answer keeps no message locked."""

    async def receive_and_disconnect(
        self, api: ApiServer, *, after: Callable[[], Awaitable[object]] | None = None, **wanted: Any
    ) -> int:
        """Receive and disconnect. Return the number of answers that were begun."""
        results: list[Any] = []
        key = wanted.pop("key", None)
        headers = [(b"idempotency-key", key.encode())] if key else []
        events = [{"type": "http.request", "body": json.dumps(wanted).encode()}]

        async def receive() -> Any:
            if events:
                return events.pop()
            if after is not None and not results:
                results.append(await after())
            return {"type": "http.disconnect"}

        answers: list[Any] = []

        async def send(event: Any) -> None:
            answers.append(event)

        path = "/v1/queues/orders/messages/receive"
        where = {"path": path, "raw_path": path.encode(), "query_string": b""}
        scope = {"type": "http", "method": "POST", **where, "headers": headers}
        await api.middleware(scope, receive, send)
        return len(answers)

    @pytest.mark.behaviour("S3.28")
    async def test_its_messages_were_claimed_and_are_released_without_a_failure(self, api: ApiServer) -> None:
        claim = api.broker.store.claim
        claimed: list[int] = []

        async def recorded_claim(wanted: Claim) -> list[Message]:
            messages = await claim(wanted)
            claimed.extend(message.sequence_number for message in messages)
            return messages

        for _ in range(3):
            await api.send()
        assert await self.receive_and_disconnect(api.with_store(claim=recorded_claim), max_messages=2) == 0
        assert claimed == [1, 2]
        assert await api.counts() == {"available": 3}
        again = await api.receive(max_messages=3)
        assert [message["sequence_number"] for message in again] == [1, 2, 3]
        assert [message["failure_count"] for message in again] == [0, 0, 0]

    async def test_a_client_that_disconnects_while_waiting_claims_nothing(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/orders")
        assert await self.receive_and_disconnect(api, wait_seconds=20) == 0
        await api.send()
        assert await api.counts() == {"available": 1}
        assert api.broker.wait_queue.wait_keys() == []
        assert api.clock.timers == 0

    async def test_a_disconnect_during_the_first_filtered_scan_ends_the_scan(self, api: ApiServer) -> None:
        ended: list[bool] = []

        async def wait_forever(*_: object) -> list[Any]:
            try:
                return await asyncio.Event().wait()  # type: ignore[return-value]
            finally:
                ended.append(True)

        await api.send()
        searching = api.with_store(candidates=wait_forever)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await self.receive_and_disconnect(searching, filter="message.priority == 1") == 0
        assert ended == [True]

    async def test_a_message_that_arrives_at_the_disconnect_stays_available(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/orders")
        assert await self.receive_and_disconnect(api, after=api.send, wait_seconds=20) == 0
        await run_ready_tasks()
        assert await api.counts() == {"available": 1}

    async def test_a_claim_completed_at_the_cancellation_is_released(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/orders", {"max_delivery_count": 1})
        claim = api.broker.store.claim
        asking: list[asyncio.Task[Any]] = []

        async def claim_as_the_request_is_cancelled(wanted: Claim) -> list[Message]:
            messages = await claim(wanted)
            receiving = asyncio.current_task()
            if messages and receiving is not None:
                receiving.add_done_callback(lambda _: asking[0].cancel())
            return messages

        cancelled = api.with_store(claim=claim_as_the_request_is_cancelled)
        asking.append(asyncio.create_task(cancelled.receive(wait_seconds=20)))
        await run_ready_tasks()
        await api.send()
        await asyncio.wait(asking)
        assert asking[0].cancelled()
        (message,) = await api.receive()
        assert (message["delivery_count"], message["failure_count"]) == (1, 0)

    @pytest.mark.behaviour("S3.12")
    async def test_its_deleted_messages_are_lost_and_counted(self, api: ApiServer) -> None:
        await api.send()
        assert await self.receive_and_disconnect(api, mode="receive_and_delete") == 0
        assert await api.counts() == {}
        assert api.broker.counters["messages_lost"] == 1

    @pytest.mark.behaviour("S3.12")
    @pytest.mark.parametrize("lost", [False, True])
    @pytest.mark.parametrize("size", [1, 200_000])
    @pytest.mark.parametrize("path", ["receive", "receive/raw?mode=receive_and_delete"])
    async def test_messages_of_a_transfer_that_breaks_off_are_counted(
        self, api: ApiServer, path: str, size: int, lost: bool
    ) -> None:
        """The client has taken the head and a part of the body."""
        await api.send(body="x" * size)
        path, _, query = f"/v1/queues/orders/messages/{path}".partition("?")
        requests = [{"type": "http.request", "body": b"" if query else b'{"mode": "receive_and_delete"}'}]
        answers: list[Any] = []

        async def receive() -> Any:
            if requests:
                return requests.pop()
            if not (lost and len(answers) >= 2):
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(event: Any) -> None:
            answers.append(event)

        where = {"path": path, "raw_path": path.encode(), "query_string": query.encode()}
        await api.middleware({"type": "http", "method": "POST", **where, "headers": []}, receive, send)
        assert answers[0]["status"] == 200
        assert api.broker.counters["messages_lost"] == lost

    async def test_a_repeated_attempt_gets_the_locked_messages(self, api: ApiServer) -> None:
        await api.send()
        assert await self.receive_and_disconnect(api, key="r-1") == 0
        assert await api.counts() == {"locked": 1}

    async def test_its_settlements_stay_in_effect(self, api: ApiServer) -> None:
        await api.send()
        (message,) = await api.receive()
        settlements = [{"action": "complete", "lock_token": message["lock_token"]}]
        await self.receive_and_disconnect(api, settlements=settlements, wait_seconds=5)
        assert await api.counts() == {}
