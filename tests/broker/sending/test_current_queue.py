"""An operation on a deleted queue looks the queue up once more, and only once."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from app.broker.ports.sending import QueueGone
from app.broker.sending.ports import SendingPorts
from app.broker.sending.send import send, send_each
from app.broker.sending.send_synchronously import send_synchronously
from app.broker.sending.target_queue import with_current_queue
from app.domain.message import Envelope
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import QueueNotFound
from app.domain.sending import NewMessage
from tests.brokers import ChangedStore, OpenBroker

Send = Callable[[SendingPorts], Awaitable[object]]
NEW_MESSAGE = NewMessage(Envelope(""))
SENDS: list[Send] = [
    lambda ports: send(ports, "orders", [NEW_MESSAGE]),
    lambda ports: send_each(ports, "orders", [NEW_MESSAGE]),
    lambda ports: send_synchronously(ports, "orders", NEW_MESSAGE, 0, None),
]
each_send = pytest.mark.parametrize("send_to", SENDS, ids=["send", "send_each", "send_synchronously"])


async def test_a_queue_that_is_deleted_at_each_try_is_not_found(broker: OpenBroker) -> None:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    tries: list[Queue] = []

    async def go(present: Queue) -> None:
        tries.append(present)
        raise QueueGone

    with pytest.raises(QueueNotFound, match="orders"):
        await with_current_queue(broker.queue_cache, queue, go)
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

    assert await with_current_queue(broker.queue_cache, queue, store) == again


@each_send
async def test_a_send_to_a_queue_that_is_deleted_at_each_try_is_not_found(
    broker: OpenBroker, queue: Queue, send_to: Send
) -> None:
    tries: list[object] = []

    async def store(*stored: Any) -> None:
        tries.append(stored)
        raise QueueGone

    ports = replace(broker.sending, store=ChangedStore(broker.store, send=store, execute=store))
    with pytest.raises(QueueNotFound, match="orders"):
        await send_to(ports)
    assert len(tries) == 2
    assert await broker.store.queues.total(queue.id) == 0


@each_send
async def test_a_send_looks_up_the_new_queue_of_the_same_name(broker: OpenBroker, queue: Queue, send_to: Send) -> None:
    assert await broker.queue_cache.by_name("orders") == queue
    assert await broker.store.queues.delete(queue)
    again, _ = await broker.store.queues.create("orders", QueueSettings())
    found: list[Queue] = []

    async def store(*stored: Any) -> None:
        found.append(await broker.queue_cache.by_name("orders"))
        raise QueueGone

    ports = replace(broker.sending, store=ChangedStore(broker.store, send=store, execute=store))
    with pytest.raises(QueueNotFound):
        await send_to(ports)
    assert found == [queue, again]
