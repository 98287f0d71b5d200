"""The times of deliveries are averages of a sample, and only as many deliveries are awaited as memory allows."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from app.broker.administration.browse import read_message
from app.console.latency import MAX_DELIVERIES, Kind, Latencies, averages
from app.domain.instant import SECOND
from app.domain.message import Message
from app.domain.settlement import LockToken, Outcome, Removal
from tests.console.console_server import ConsoleServer


@pytest.fixture
async def delivered(console: ConsoleServer) -> Message:
    """A message that is locked."""
    await console.api.send(body=1)
    await console.api.receive()
    queue = await console.api.broker.store.queues.by_name("orders")
    assert queue is not None
    return await read_message(console.context.broker.administration, queue, 1)


def taken(latencies: Latencies, queue_id: int) -> Mapping[Kind, float]:
    """Take the times, and return the averages of this queue."""
    return averages(latencies.take().get(queue_id, {}))


def completed(message: Message) -> Removal:
    """The settlement of a message."""
    token = LockToken(message.sequence_number, message.lock_token or b"")
    return Removal(token, message.queue_id, "orders", Outcome.COMPLETED, 0)


async def test_a_sample_has_the_averages_by_queue(console: ConsoleServer, delivered: Message) -> None:
    latencies, other = Latencies(console.api.clock), replace(delivered, sequence_number=2)
    latencies.time_deliveries([delivered, other])
    await console.api.clock.advance(2)
    latencies.time_settlements([completed(delivered)])
    await console.api.clock.advance(2)
    latencies.time_settlements([completed(other), completed(other)])
    sums = latencies.take()
    assert averages(sums[delivered.queue_id]) == {"waiting": 0, "processing": 3}
    assert len(sums) == 1
    assert latencies.take() == {}


async def test_a_message_waits_from_its_due_time_to_its_delivery(console: ConsoleServer, delivered: Message) -> None:
    latencies, due = Latencies(console.api.clock), delivered.available_at
    later = replace(delivered, last_delivered_at=due + 3 * SECOND, read_at=due + 9 * SECOND)
    early = replace(delivered, sequence_number=2, last_delivered_at=due - SECOND)
    latencies.time_deliveries([later])
    assert taken(latencies, delivered.queue_id) == {"waiting": 3}
    latencies.time_deliveries([early])
    assert taken(latencies, delivered.queue_id) == {"waiting": 0}


async def test_a_delivery_by_another_process_has_no_time(console: ConsoleServer, delivered: Message) -> None:
    latencies = Latencies(console.api.clock)
    latencies.time_settlements([completed(delivered)])
    assert taken(latencies, delivered.queue_id) == {}


async def test_a_later_delivery_by_another_process_has_no_time(console: ConsoleServer, delivered: Message) -> None:
    latencies = Latencies(console.api.clock)
    latencies.time_deliveries([delivered])
    latencies.time_settlements([completed(replace(delivered, lock_token=b"a later delivery"))])
    assert "processing" not in taken(latencies, delivered.queue_id)


async def test_the_oldest_delivery_is_forgotten_first(console: ConsoleServer, delivered: Message) -> None:
    latencies = Latencies(console.api.clock)
    messages = [replace(delivered, sequence_number=number) for number in range(MAX_DELIVERIES + 1)]
    latencies.time_deliveries(messages)
    latencies.time_settlements([completed(messages[0])])
    assert "processing" not in taken(latencies, delivered.queue_id)
    latencies.time_settlements([completed(messages[1])])
    assert "processing" in taken(latencies, delivered.queue_id)
