"""What is stored where a queue is looks the queue up once more when it is gone, and no further."""

import pytest

from app.broker.broker import Broker
from app.broker.ports import QueueGone
from app.broker.present import where_present
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import QueueNotFound


async def test_a_queue_that_goes_each_time_is_not_found(broker: Broker) -> None:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    tries: list[Queue] = []

    async def go(present: Queue) -> None:
        tries.append(present)
        raise QueueGone

    with pytest.raises(QueueNotFound, match="orders"):
        await where_present(broker, queue, go, broker.catalogue.named)
    assert tries == [queue, queue]


async def test_a_queue_that_was_made_again_takes_its_place(broker: Broker) -> None:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    assert await broker.catalogue.named("orders") == queue
    assert await broker.store.queues.delete(queue)
    again, _ = await broker.store.queues.create("orders", QueueSettings())

    async def store(present: Queue) -> Queue:
        if present.id == queue.id:
            raise QueueGone
        return present

    assert await where_present(broker, queue, store, broker.catalogue.named) == again
