"""Messages claimed for a receiver that disconnects, or whose store call fails, are released."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.broker.receiving.receive import ReceiveMode, ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import Abandonment, abandon
from app.broker.settling.settle import release_undelivered, settle_one
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import StoreUnavailable
from app.domain.sending import NewMessage
from app.domain.settlement import Move, token_of
from tests.brokers import OpenBroker, result_of
from tests.virtual_clock import run_advancing, run_ready_tasks

MAX_DELIVERY_COUNT = 1


class StalledStore:
    """A store in which one method hangs or fails; releases still work."""

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
    """Records which receivers are woken."""

    def __init__(self) -> None:
        self.notified: list[tuple[int, int]] = []

    def notify(self, queue_id: int, count: int = 1, passed_numbers: Sequence[int] = ()) -> None:
        self.notified.append((queue_id, count))

    def schedule_changed(self) -> None:
        """Do nothing."""

    def queues_changed(self) -> None:
        """Do nothing."""


@pytest.fixture
async def queue(broker: OpenBroker) -> Queue:
    queue, _ = await broker.store.queues.create("orders", QueueSettings(max_delivery_count=MAX_DELIVERY_COUNT))
    return queue


async def states(broker: OpenBroker, queue: Queue) -> dict[str, MessageState]:
    """Return the state of each message."""
    found = await broker.store.browse(queue.id, list(MessageState), 0, 10)
    return {message.envelope.message_id: message.state for message in found}


async def test_an_interrupted_receive_and_delete_returns_its_messages(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope("a"))])
    slow = replace(broker, store=StalledStore(broker.store, "remove"))
    receiving = asyncio.create_task(
        result_of(receive(slow.receiving, queue, ReceiveRequest(mode=ReceiveMode.RECEIVE_AND_DELETE)))
    )
    await run_ready_tasks()
    assert await states(broker, queue) == {"a": MessageState.LOCKED}
    receiving.cancel()
    await asyncio.wait({receiving})
    assert await states(broker, queue) == {"a": MessageState.AVAILABLE}
    failing = replace(broker, store=StalledStore(broker.store, "remove", StoreUnavailable()))
    with pytest.raises(StoreUnavailable):
        await receive(failing.receiving, queue, ReceiveRequest(mode=ReceiveMode.RECEIVE_AND_DELETE))
    assert await states(broker, queue) == {"a": MessageState.AVAILABLE}


async def test_messages_held_by_another_request_return_to_the_queue(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope("a"))])

    class Holding(StalledStore):
        async def remove(self, removals: Sequence[Any]) -> list[bool]:
            return [False for _ in removals]

    holding = replace(broker, store=Holding(broker.store, "none"))
    clock: Any = broker.clock
    assert (
        await run_advancing(
            clock, result_of(receive(holding.receiving, queue, ReceiveRequest(mode=ReceiveMode.RECEIVE_AND_DELETE)))
        )
        == []
    )
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    assert (message.delivery_count, message.failure_count) == (1, 0)


async def test_a_release_wakes_receivers_only_for_released_messages(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope("")) for _ in range(4)])
    locked = (await receive(broker.receiving, queue, ReceiveRequest(max_messages=4))).result
    notifier = RecordingNotifier()
    notifying = replace(broker, notifier=notifier)
    await release_undelivered(notifying.settling, queue, locked[:3])
    await release_undelivered(notifying.settling, queue, locked)
    assert notifier.notified == [(queue.id, 3), (queue.id, 1)]
    await release_undelivered(notifying.settling, queue, locked)
    assert len(notifier.notified) == 2


async def test_a_released_dead_letter_wakes_dead_letter_receivers(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope("a"))])
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    await settle_one(broker.settling, queue, abandon(queue, token_of(message), Abandonment()))
    dead = (await receive(broker.receiving, queue, ReceiveRequest(source=MessageState.DEAD_LETTERED))).result
    notifier = RecordingNotifier()
    await release_undelivered(replace(broker, notifier=notifier).settling, queue, dead)
    assert notifier.notified == [(-queue.id, 1)]


async def test_a_message_that_cannot_be_released_stays_locked(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope("a"))])
    locked = (await receive(broker.receiving, queue, ReceiveRequest())).result

    class Away:
        async def move(self, moves: Sequence[Move]) -> list[bool]:
            raise StoreUnavailable

    away: Any = Away()
    await release_undelivered(replace(broker.settling, store=away), queue, locked)
    assert await states(broker, queue) == {"a": MessageState.LOCKED}
