"""What is stored where a queue is looks the queue up once more when it is gone, and no further."""

import pytest

from app.broker.broker import Broker
from app.broker.current_queue import with_current_queue
from app.broker.ports import QueueGone
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import QueueNotFound


async def test_a_queue_that_goes_each_time_is_not_found(broker: Broker) -> None:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    tries: list[Queue] = []

    async def go(present: Queue) -> None:
        tries.append(present)
        raise QueueGone

    with pytest.raises(QueueNotFound, match="orders"):
        await with_current_queue(broker, queue, go, broker.queue_cache.by_name)
    assert tries == [queue, queue]


async def test_a_queue_that_was_made_again_takes_its_place(broker: Broker) -> None:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    assert await broker.queue_cache.by_name("orders") == queue
    assert await broker.store.queues.delete(queue)
    again, _ = await broker.store.queues.create("orders", QueueSettings())

    async def store(present: Queue) -> Queue:
        if present.id == queue.id:
            raise QueueGone
        return present

    assert await with_current_queue(broker, queue, store, broker.queue_cache.by_name) == again
