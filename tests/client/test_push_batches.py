"""Pushes of several messages in one request, as a batch of CloudEvents."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import UNSET
from peeklock_client import CloudEvent
from peeklock_client.push.answers import Complete, Decision
from peeklock_client.push.batches import MAX_BATCH_BYTES, Batches

from tests.client.push_network import PushedRequest, ScriptedNetwork, always, answered, push, settlements
from tests.client.virtual_broker import Broker
from tests.client.virtual_loop import run_virtually

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def events_of(network: ScriptedNetwork) -> list[list[dict[str, Any]]]:
    """Return the events of each request."""
    return [json.loads(request.body) for request in network.requests]


def test_a_request_carries_up_to_the_number_of_messages_and_its_answer_settles_all() -> None:
    broker, network = Broker(25), ScriptedNetwork(always(200, seconds=0.5))
    pushed = push(broker, network, until=10, batch=10, concurrency=1)
    assert sorted(map(len, events_of(network)), reverse=True)[:2] == [10, 10]
    assert sum(map(len, events_of(network))) == 25
    assert settlements(broker) == [{"action": "complete"}] * 25
    assert (pushed.report.completed, pushed.delivery.counts.completed) == (25, len(network.requests))
    for request in network.requests:
        assert request.headers["content-type"] == "application/cloudevents-batch+json; charset=utf-8"
        assert request.headers["webhook-id"].startswith("batch_")
        assert request.headers["peeklock-queue"] == "orders"


@pytest.mark.parametrize(
    ("status", "action"), [(500, "abandon"), (503, "abandon"), (410, "dead_letter"), (204, "complete")]
)
def test_one_answer_decides_about_all_messages_of_its_batch(status: int, action: str) -> None:
    broker = Broker(8)
    push(broker, ScriptedNetwork(always(status)), until=1, batch=8, concurrency=1)
    assert [one["action"] for one in settlements(broker)] == [action] * 8


def test_batches_under_way_are_as_many_as_requests_may_be() -> None:
    network = ScriptedNetwork(always(200, seconds=1))
    push(Broker(100), network, until=60, batch=5, concurrency=2)
    assert network.most == 2


def test_messages_do_not_wait_long_for_others() -> None:
    network = ScriptedNetwork(always(200))
    push(Broker(3), network, until=1, batch=100)
    [request] = network.requests
    assert request.at < 0.1


def test_a_message_becomes_an_event_with_the_fields_that_it_has() -> None:
    network = ScriptedNetwork(always(200))
    fields = {"body": {"order": 17}, "subject": "order.placed", "correlation_id": "basket-3", "group_id": "g"}
    push(Broker(1, fields=fields), network, until=1, batch=1)
    [[event]] = events_of(network)
    assert event == {
        "specversion": "1.0", "id": "1", "source": "/queues/orders", "type": "order.placed",
        "time": "2026-01-01T00:00:00Z", "datacontenttype": "application/json", "data": {"order": 17},
        "peeklockqueue": "orders", "peeklocksequence": "1", "peeklockdelivery": 1, "peeklockcorrelation": "basket-3",
        "peeklockgroup": "g",
    }  # fmt: skip


def test_an_event_that_was_sent_keeps_its_attributes() -> None:
    sent = CloudEvent(
        "order.paid", "/shop", {"order": 17}, id="e-1", subject="17", extensions={"region": "eu"}
    ).to_message()
    network = ScriptedNetwork(always(200))
    push(Broker(1, fields={"body": sent.body, "properties": dict(sent.properties)}), network, until=1, batch=1)
    [[event]] = events_of(network)
    assert {name: event[name] for name in ("type", "source", "id", "subject", "region", "data")} == {
        "type": "order.paid", "source": "/shop", "id": "e-1", "subject": "17", "region": "eu", "data": {"order": 17},
    }  # fmt: skip


def test_no_sender_chooses_the_queue_the_number_or_the_delivery_of_an_event() -> None:
    names = ("peeklockqueue", "peeklocksequence", "peeklockdelivery")
    sent = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.paid", **dict.fromkeys(names, "x")}
    network = ScriptedNetwork(always(200))
    fields = {"properties": {f"cloudEvents:{name}": value for name, value in sent.items()}, "traceparent": TRACE}
    push(Broker(1, fields=fields), network, until=1, batch=1)
    [[event]] = events_of(network)
    assert [event[name] for name in (*names, "id", "traceparent")] == ["orders", "1", 1, "e-1", TRACE]


@pytest.mark.parametrize(
    "attributes",
    [
        {"specversion": "0.3"}, {"id": ""}, {"source": None}, {"type": 5}, {"subject": ""}, {"data": "false"},
        {"data_base64": "AAAA"}, {"": "x"}, {"Region": "eu"}, {"region": 1.5}, {"region": None}, {"region": 1 << 31},
        {"time": "yesterday"}, {"time": "2026-01-01"}, {"time": "2026-02-30T10:00:00Z"}, {"time": "2026-01-01T10:00:00"},
        {"time": "20260101T100000Z"}, {"time": "2026-W01-1T10:00:00Z"},
        {"source": "a b"}, {"source": "/%zz"}, {"source": ":1"}, {"dataschema": "/schema"}, {"datacontenttype": "json"},
        {"specversion": UNSET}, {"id": UNSET}, {"source": UNSET}, {"type": UNSET},
        {"datacontenttype": "text/plain\n"}, {"type": "a\nb"}, {"region": "\u0085"}, {"subject": "\ufffe"},
    ],
)  # fmt: skip
def test_properties_that_make_no_valid_event_cannot_spoil_a_batch(attributes: dict[str, Any]) -> None:
    sent = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.paid", **attributes}
    properties = {f"cloudEvents:{name}": value for name, value in sent.items() if value is not UNSET}
    network = ScriptedNetwork(always(200))
    push(Broker(1, fields={"body": True, "properties": properties}), network, until=1, batch=1)
    [[event]] = events_of(network)
    assert event == {
        "specversion": "1.0", "id": "1", "source": "/queues/orders", "type": "peeklock.message",
        "time": "2026-01-01T00:00:00Z", "datacontenttype": "application/json", "data": True,
        "peeklockqueue": "orders", "peeklocksequence": "1", "peeklockdelivery": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time", "2026-02-28t10:00:00.123456789z"), ("time", "2026-01-01 10:00:00+05:30"), ("source", "urn:shop:7"),
        ("source", "https://shop.example/a%20b?c#d"), ("source", "a/b"), ("dataschema", "https://shop.example/schema"),
        ("datacontenttype", 'text/plain; charset="utf-8"'), ("subject", "Grüße"), ("region", -(1 << 31)), ("region", True),
        ("region", ""),
    ],
)  # fmt: skip
def test_attributes_of_every_allowed_form_are_kept(name: str, value: object) -> None:
    sent = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.paid", name: value}
    properties = {f"cloudEvents:{name}": value for name, value in sent.items()}
    network = ScriptedNetwork(always(200))
    push(Broker(1, fields={"properties": properties}), network, until=1, batch=1)
    [[event]] = events_of(network)
    assert event.items() >= sent.items()


@pytest.mark.parametrize("content_type", ["json", "webhook-id: 1", "a/b/c", "/", "text/", "text/plain, text/html"])
def test_a_content_type_that_is_no_media_type_is_left_out_of_the_event(content_type: str) -> None:
    network = ScriptedNetwork(always(200))
    push(Broker(1, fields={"content_type": content_type}), network, until=1, batch=1)
    [[event]] = events_of(network)
    assert "datacontenttype" not in event


@pytest.mark.parametrize(
    ("fields", "member"),
    [
        ({"body_base64": "AP8=", "content_type": "image/png"}, {"data_base64": "AP8=", "datacontenttype": "image/png"}),
        ({"body": "text", "content_type": "text/plain"}, {"data": "text", "datacontenttype": "text/plain"}),
        ({"body": None}, {"data": None, "datacontenttype": "application/json"}),
        ({"properties": {"n": 1}, "subject": ""}, {"type": "peeklock.message"}),
    ],
)
def test_a_body_is_data_in_the_form_of_its_type(fields: dict[str, Any], member: dict[str, Any]) -> None:
    network = ScriptedNetwork(always(200))
    push(Broker(1, fields=fields), network, until=1, batch=1)
    [[event]] = events_of(network)
    assert member.items() <= event.items()


def test_texts_that_are_empty_are_no_attributes() -> None:
    network = ScriptedNetwork(always(200))
    texts: dict[str, Any] = dict.fromkeys(("correlation_id", "reply_to", "to"), "")
    push(Broker(1, fields=texts), network, until=1, batch=1)
    [[event]] = events_of(network)
    assert "" not in event.values()


def test_large_events_are_sent_in_batches_of_limited_size() -> None:
    network = ScriptedNetwork(always(200))
    push(Broker(10, fields={"body": "x" * (MAX_BATCH_BYTES // 3)}), network, until=5, batch=10)
    assert [len(batch) for batch in events_of(network)] == [2, 2, 2, 2, 2]


def test_a_batch_has_at_most_its_size_with_brackets_and_commas() -> None:
    network = ScriptedNetwork(always(200))
    push(Broker(1, fields={"body": ""}), network, until=1, batch=1)
    size_of_rest = len(network.requests[0].body) - len("[]")
    network = ScriptedNetwork(always(200))
    push(Broker(4, fields={"body": "x" * (MAX_BATCH_BYTES // 4 - size_of_rest)}), network, until=5, batch=4)
    assert [len(batch) for batch in events_of(network)] == [3, 1]


class Sent:
    """Notes the ids of each batch, and answers after a second."""

    def __init__(self, error: Exception | None = None) -> None:
        self.batches: list[list[str]] = []
        self.answered = 0
        self._error = error

    async def __call__(self, events: dict[str, bytes]) -> Decision:
        self.batches.append([*events])
        await asyncio.sleep(1)
        self.answered += 1
        if self._error is not None:
            raise self._error
        return Complete()


def test_a_message_that_comes_during_a_request_is_in_the_next_one() -> None:
    async def scenario() -> list[list[str]]:
        sent = Sent()
        batches = Batches(sent, 10, asyncio.Semaphore(1))
        first = asyncio.create_task(batches.send("a", b"1"))
        await asyncio.sleep(0.5)
        assert [await batches.send("b", b"2"), await first] == [Complete(), Complete()]
        return sent.batches

    assert run_virtually(scenario()) == [["a"], ["b"]]


def test_a_message_that_is_given_up_is_in_no_batch() -> None:
    async def scenario() -> list[list[str]]:
        sent = Sent()
        batches = Batches(sent, 10, asyncio.Semaphore(1))
        calls = [asyncio.create_task(batches.send(name, b"1")) for name in "abc"]
        await asyncio.sleep(0)
        calls[1].cancel()
        await asyncio.wait(calls)
        alone = asyncio.create_task(batches.send("d", b"1"))
        await asyncio.sleep(0)
        alone.cancel()
        await asyncio.sleep(2)
        return sent.batches

    assert run_virtually(scenario()) == [["a", "c"]]


@pytest.mark.parametrize(("given_up", "answered_requests"), [(1, 1), (2, 0)])
def test_a_request_ends_once_none_of_its_messages_waits(given_up: int, answered_requests: int) -> None:
    async def scenario() -> int:
        sent = Sent()
        batches = Batches(sent, 2, asyncio.Semaphore(1))
        calls = [asyncio.create_task(batches.send(name, b"1")) for name in "ab"]
        await asyncio.sleep(0.5)
        for call in calls[:given_up]:
            call.cancel()
        await asyncio.sleep(1)
        return sent.answered

    assert run_virtually(scenario()) == answered_requests


def test_a_fault_of_a_request_is_raised_for_each_of_its_messages() -> None:
    async def scenario() -> list[BaseException | None]:
        batches = Batches(Sent(ValueError("broken")), 2, asyncio.Semaphore(1))
        calls = [asyncio.create_task(batches.send(name, b"1")) for name in "ab"]
        await asyncio.wait(calls)
        return [call.exception() for call in calls]

    assert [str(one) for one in run_virtually(scenario())] == ["broken", "broken"]


def test_a_stop_before_the_answer_gives_all_messages_back() -> None:
    broker, network = Broker(4), ScriptedNetwork(always(200, seconds=3600))
    pushed = push(broker, network, until=1, grace=1, batch=4)
    assert settlements(broker) == [{"action": "abandon", "count": False}] * 4
    assert (pushed.report.completed, network.now) == (0, 0)


def test_the_circuit_opens_by_batches_and_tries_one_message() -> None:
    async def answer(request: PushedRequest) -> bytes:
        return answered(500 if request.at < 3 else 200)

    broker, network = Broker(1000), ScriptedNetwork(answer)
    pushed = push(broker, network, until=30, batch=10, concurrency=1, open_after=2)
    sizes = [len(batch) for batch in events_of(network)]
    assert sizes[:4] == [10, 10, 1, 1]
    assert max(sizes[4:]) == 10
    assert (pushed.delivery.circuit.opened, pushed.delivery.circuit.is_open) == (1, False)
