"""A broker over the in-memory store, its clock, and a queue; tests with other needs define their own."""

from collections.abc import AsyncIterator

import pytest

from app.domain.queue import Queue, QueueSettings
from tests.brokers import OpenBroker, sqlite_broker
from tests.virtual_clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def broker(clock: VirtualClock) -> AsyncIterator[OpenBroker]:
    async with sqlite_broker("sqlite://", clock) as broker:
        yield broker


@pytest.fixture
async def queue(broker: OpenBroker) -> Queue:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    return queue
