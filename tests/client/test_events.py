"""CloudEvents: sent and received by this client, and exchanged with programs that send them over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from peeklock_client import Client, CloudEvent, InvalidCloudEvent, Queue, Worker

from tests.client.conftest import new_queue

EVENT = {"specversion": "1.0", "id": "event-2", "source": "/shop", "type": "order.paid", "data": {"number": 17}}
PLACED_AT = datetime(2026, 11, 24, 12, 30, 0, 123000, tzinfo=UTC)


@dataclass
class Order:
    number: int


async def received_event(queue: Queue) -> CloudEvent[Any]:
    [context] = await queue.receive()
    return CloudEvent.from_message(context.message)


@pytest.mark.parametrize("data", [{"number": 17}, None, "text", b"\x00\xff"])
async def test_an_event_arrives_as_it_was_sent(queue: Queue, data: Any) -> None:
    event = CloudEvent(
        "order.placed", "/shop", data, "event-1", subject="17", time=PLACED_AT, dataschema="https://shop.example/order",
        datacontenttype="application/octet-stream" if isinstance(data, bytes) else None,
        extensions={"region": "eu", "attempt": 2, "express": True},
    )  # fmt: skip
    await queue.send(event)
    assert await received_event(queue) == event


async def test_the_server_makes_the_same_message_of_an_event(client: Client, queue: Queue, server_url: str) -> None:
    await queue.send(CloudEvent("order.paid", "/shop", {"number": 17}, "event-2"))
    async with httpx.AsyncClient() as http:
        url = f"{server_url}/v1/queues/{queue.name}/messages/raw"
        await http.post(url, json=EVENT, headers={"Content-Type": "application/cloudevents+json"})
    [own, foreign] = [context.message for context in await queue.receive(2)]
    assert CloudEvent.from_message(own) == CloudEvent.from_message(foreign)
    assert (own.message_id, own.subject, own.properties) == (foreign.message_id, foreign.subject, foreign.properties)


async def test_a_handler_gets_events_with_their_data_by_type_and_no_other_message(client: Client, queue: Queue) -> None:
    worker, results = Worker(client), await new_queue(client)

    @worker.on(queue.name)
    async def handle(event: CloudEvent[Order]) -> Any:
        return CloudEvent("order.invoiced", event.source, event.data.number).to_message(queue=results.name)

    await queue.send(CloudEvent("order.placed", "/shop", {"number": 17}))
    await queue.send(CloudEvent("order.placed", "/shop", "no order"))
    await queue.send({"number": 18})
    async with worker.lifespan():
        [invoiced] = await results.receive(wait_seconds=20)
        dead = [*await queue.receive(2, source="dead_letter", wait_seconds=20)]
        dead += await queue.receive(2 - len(dead), source="dead_letter", wait_seconds=20) if len(dead) < 2 else []
    event = CloudEvent.from_message(invoiced.message)
    assert (event.type, event.source, event.data) == ("order.invoiced", "/shop", 17)
    assert [context.message.dead_letter_reason for context in dead] == ["invalid_body"] * 2


async def test_other_messages_are_no_events(queue: Queue) -> None:
    await queue.send("text")
    other_version = {"specversion": "0.3", "id": "1", "source": "/shop", "type": "order.placed"}
    await queue.send("text", properties={f"cloudEvents:{name}": value for name, value in other_version.items()})
    await queue.send("text", properties={"cloudEvents:specversion": "1.0", "cloudEvents:id": "1"})
    for _ in range(3):
        with pytest.raises(InvalidCloudEvent):
            await received_event(queue)


def test_events_without_an_id_get_different_ones() -> None:
    first, second = [CloudEvent("order.placed", "/shop", None).to_message().message_id for _ in range(2)]
    assert first
    assert second not in (None, first)


@pytest.mark.parametrize("name", ["Region", "re-gion", "", "id", "specversion"])
def test_an_extension_has_a_name_of_its_own(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid name"):
        CloudEvent("order.placed", "/shop", None, extensions={name: 1})


async def test_the_fields_of_an_event_are_not_given_twice(queue: Queue) -> None:
    with pytest.raises(TypeError, match="not in the call"):
        await queue.send(CloudEvent("order.placed", "/shop", None), subject="another")
