"""What was claimed for a receiver that goes, or that the store fails meanwhile, is given back uncounted."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.broker.abandon import Abandonment, abandon
from app.broker.broker import Broker
from app.broker.receive import ReceiveRequest, receive, receive_and_delete
from app.broker.release_undelivered import release_undelivered
from app.broker.send import send
from app.broker.settle import settle_one
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import StoreUnavailable
from app.domain.sending import NewMessage
from app.domain.settlement import Move, token_of
from tests.virtual_clock import run_advancing, run_ready_tasks

MAX_DELIVERY_COUNT = 1


class StalledStore:
    """A store that never gets round to a method, or fails in it; giving back still works."""

    def __init__(self, store: Any, method: str, failure: Exception | None = None) -> None:
        self._store = store
        self._method = method
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def remove(self, removals: Sequence[Any]) -> list[bool]:
        await self._stall("remove")
        return await self._store.remove(removals)

    async def _stall(self, method: str) -> None:
        if method == self._method:
            if self._failure is not None:
                raise self._failure
            await asyncio.Event().wait()


class RecordingNotifier:
    """Notes who is rung for."""

    def __init__(self) -> None:
        self.notified: list[tuple[int, int]] = []

    def notify(self, queue_id: int, count: int = 1, passed_numbers: Sequence[int] = ()) -> None:
        self.notified.append((queue_id, count))

    def schedule_changed(self) -> None:
        """Nothing of that here."""

    def queue_changed(self, queue_id: int) -> None:
        """Nothing of that here."""


@pytest.fixture
async def queue(broker: Broker) -> Queue:
    queue, _ = await broker.store.queues.create("orders", QueueSettings(max_delivery_count=MAX_DELIVERY_COUNT))
    return queue


async def states(broker: Broker, queue: Queue) -> dict[str, MessageState]:
    """Where each message is."""
    found = await broker.store.browse(queue.id, list(MessageState), 0, 10)
    return {message.envelope.message_id: message.state for message in found}


async def test_whoever_goes_before_its_messages_are_deleted_has_them_back_in_the_queue(
    broker: Broker, queue: Queue
) -> None:
    await send(broker, queue, [NewMessage(Envelope("a"))])
    slow = replace(broker, store=StalledStore(broker.store, "remove"))
    receiving = asyncio.create_task(receive_and_delete(slow, queue, ReceiveRequest()))
    await run_ready_tasks()
    assert await states(broker, queue) == {"a": MessageState.LOCKED}
    receiving.cancel()
    await asyncio.wait({receiving})
    assert await states(broker, queue) == {"a": MessageState.AVAILABLE}
    failing = replace(broker, store=StalledStore(broker.store, "remove", StoreUnavailable()))
    with pytest.raises(StoreUnavailable):
        await receive_and_delete(failing, queue, ReceiveRequest())
    assert await states(broker, queue) == {"a": MessageState.AVAILABLE}


async def test_messages_held_by_another_request_return_to_the_queue(broker: Broker, queue: Queue) -> None:
    await send(broker, queue, [NewMessage(Envelope("a"))])

    class Holding(StalledStore):
        async def remove(self, removals: Sequence[Any]) -> list[bool]:
            return [False for _ in removals]

    holding = replace(broker, store=Holding(broker.store, "none"))
    clock: Any = broker.clock
    assert await run_advancing(clock, receive_and_delete(holding, queue, ReceiveRequest())) == []
    (message,) = await receive(broker, queue, ReceiveRequest())
    assert (message.delivery_count, message.failure_count) == (2, 0)


async def test_only_those_are_rung_for_whom_something_came_back(broker: Broker, queue: Queue) -> None:
    await send(broker, queue, [NewMessage(Envelope("")) for _ in range(4)])
    held = await receive(broker, queue, ReceiveRequest(max_messages=4))
    bells = RecordingNotifier()
    watched = replace(broker, notifier=bells)
    await release_undelivered(watched, queue, held[:3])
    await release_undelivered(watched, queue, held)
    assert bells.notified == [(queue.id, 3), (queue.id, 1)]
    await release_undelivered(watched, queue, held)
    assert len(bells.notified) == 2


async def test_what_comes_back_to_the_dead_letter_queue_rings_for_those_who_wait_there(
    broker: Broker, queue: Queue
) -> None:
    await send(broker, queue, [NewMessage(Envelope("a"))])
    (message,) = await receive(broker, queue, ReceiveRequest())
    await settle_one(broker, queue, abandon(broker, queue, token_of(message), Abandonment()))
    dead = await receive(broker, queue, ReceiveRequest(source=MessageState.DEAD_LETTERED))
    bells = RecordingNotifier()
    await release_undelivered(replace(broker, notifier=bells), queue, dead)
    assert bells.notified == [(-queue.id, 1)]


async def test_what_the_store_cannot_free_is_left_to_its_lock(broker: Broker, queue: Queue) -> None:
    await send(broker, queue, [NewMessage(Envelope("a"))])
    held = await receive(broker, queue, ReceiveRequest())

    class Away:
        async def move(self, moves: Sequence[Move]) -> list[bool]:
            raise StoreUnavailable

    away: Any = Away()
    await release_undelivered(replace(broker, store=away), queue, held)
    assert await states(broker, queue) == {"a": MessageState.LOCKED}
