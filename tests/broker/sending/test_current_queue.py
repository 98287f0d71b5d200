"""An operation on a deleted queue looks the queue up once more, and only once."""

import pytest

from app.broker.ports.sending import QueueGone
from app.broker.sending.target_queue import with_current_queue
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import QueueNotFound
from tests.brokers import OpenBroker


async def test_a_queue_that_is_deleted_at_each_try_is_not_found(broker: OpenBroker) -> None:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    tries: list[Queue] = []

    async def go(present: Queue) -> None:
        tries.append(present)
        raise QueueGone

    with pytest.raises(QueueNotFound, match="orders"):
        await with_current_queue(broker.queue_cache, queue, go, broker.queue_cache.by_name)
    assert tries == [queue, queue]


async def test_an_operation_moves_to_the_new_queue_of_the_same_name(broker: OpenBroker) -> None:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    assert await broker.queue_cache.by_name("orders") == queue
    assert await broker.store.queues.delete(queue)
    again, _ = await broker.store.queues.create("orders", QueueSettings())

    async def store(present: Queue) -> Queue:
        if present.id == queue.id:
            raise QueueGone
        return present

    assert await with_current_queue(broker.queue_cache, queue, store, broker.queue_cache.by_name) == again
