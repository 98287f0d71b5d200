"""What was claimed for a receiver that goes, or that the store fails meanwhile, is given back uncounted."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.broker.abandon import Abandonment, abandon
from app.broker.broker import Broker
from app.broker.give_back import give_back
from app.broker.receive import Wish, receive, receive_and_delete
from app.broker.send import send
from app.broker.settling import settle_one
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import StoreUnavailable
from app.domain.sending import Letter
from app.domain.settlement import Move, token_of
from tests.clock import settle, through

LIMIT = 1


class Stalled:
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


class Bells:
    """Notes who is rung for."""

    def __init__(self) -> None:
        self.rung: list[tuple[int, int]] = []

    def ring(self, queue_id: int, count: int = 1, passed: Sequence[int] = ()) -> None:
        self.rung.append((queue_id, count))

    def schedule_changed(self) -> None:
        """Nothing of that here."""

    def queue_changed(self, queue_id: int) -> None:
        """Nothing of that here."""


@pytest.fixture
async def queue(broker: Broker) -> Queue:
    queue, _ = await broker.store.queues.create("orders", QueueSettings(max_delivery_count=LIMIT))
    return queue


async def states(broker: Broker, queue: Queue) -> dict[str, MessageState]:
    """Where each message is."""
    found = await broker.store.browse(queue.id, list(MessageState), 0, 10)
    return {message.envelope.message_id: message.state for message in found}


async def test_whoever_goes_before_its_messages_are_deleted_has_them_back_in_the_queue(
    broker: Broker, queue: Queue
) -> None:
    await send(broker, queue, [Letter(Envelope("a"))])
    slow = replace(broker, store=Stalled(broker.store, "remove"))
    receiving = asyncio.create_task(receive_and_delete(slow, queue, Wish()))
    await settle()
    assert await states(broker, queue) == {"a": MessageState.LOCKED}
    receiving.cancel()
    await asyncio.wait({receiving})
    assert await states(broker, queue) == {"a": MessageState.AVAILABLE}
    failing = replace(broker, store=Stalled(broker.store, "remove", StoreUnavailable()))
    with pytest.raises(StoreUnavailable):
        await receive_and_delete(failing, queue, Wish())
    assert await states(broker, queue) == {"a": MessageState.AVAILABLE}


async def test_what_cannot_be_deleted_because_another_request_holds_it_is_back_in_the_queue(
    broker: Broker, queue: Queue
) -> None:
    await send(broker, queue, [Letter(Envelope("a"))])

    class Holding(Stalled):
        async def remove(self, removals: Sequence[Any]) -> list[bool]:
            return [False for _ in removals]

    holding = replace(broker, store=Holding(broker.store, "none"))
    clock: Any = broker.clock
    assert await through(clock, receive_and_delete(holding, queue, Wish())) == []
    (message,) = await receive(broker, queue, Wish())
    assert (message.delivery_count, message.failure_count) == (2, 0)


async def test_only_those_are_rung_for_whom_something_came_back(broker: Broker, queue: Queue) -> None:
    await send(broker, queue, [Letter(Envelope("")) for _ in range(4)])
    held = await receive(broker, queue, Wish(most=4))
    bells = Bells()
    watched = replace(broker, bells=bells)
    await give_back(watched, queue, held[:3])
    await give_back(watched, queue, held)
    assert bells.rung == [(queue.id, 3), (queue.id, 1)]
    await give_back(watched, queue, held)
    assert len(bells.rung) == 2


async def test_what_comes_back_to_the_dead_letter_queue_rings_for_those_who_wait_there(
    broker: Broker, queue: Queue
) -> None:
    await send(broker, queue, [Letter(Envelope("a"))])
    (message,) = await receive(broker, queue, Wish())
    await settle_one(broker, queue, abandon(broker, queue, token_of(message), Abandonment()))
    dead = await receive(broker, queue, Wish(source=MessageState.DEAD_LETTERED))
    bells = Bells()
    await give_back(replace(broker, bells=bells), queue, dead)
    assert bells.rung == [(-queue.id, 1)]


async def test_what_the_store_cannot_free_is_left_to_its_lock(broker: Broker, queue: Queue) -> None:
    await send(broker, queue, [Letter(Envelope("a"))])
    held = await receive(broker, queue, Wish())

    class Away:
        async def move(self, moves: Sequence[Move]) -> list[bool]:
            raise StoreUnavailable

    away: Any = Away()
    await give_back(replace(broker, store=away), queue, held)
    assert await states(broker, queue) == {"a": MessageState.LOCKED}
