"""A receive through a filter gets every matching message on every store, even with other receivers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from app.broker.filtering.filters import CelFilter
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.receiving.search_limits import SearchLimits
from app.broker.sending.send import send
from app.domain.message import Envelope, Message, MessageHeaders, MessageState
from app.domain.queue import Queue
from app.domain.sending import NewMessage
from app.domain.settlement import Move, Outcome
from tests.brokers import OpenBroker, build_broker
from tests.contract.store_fixture import StoreFixture, abandonment, numbers
from tests.virtual_clock import VirtualClock

WANTED = CelFilter("message.subject == 's'")


@pytest.fixture
async def broker(store_fixture: StoreFixture) -> AsyncIterator[OpenBroker]:
    broker = build_broker(store_fixture.store, VirtualClock())
    yield broker
    await broker.queue_cache.close()


def new_messages(*subjects: str, priority: int = 4) -> list[NewMessage]:
    return [NewMessage(Envelope("", MessageHeaders(subject=subject)), priority=priority) for subject in subjects]


async def test_concurrent_receivers_are_all_served_while_messages_match(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, new_messages(*"s" * 300))
    received: list[Message] = []

    async def receive_some() -> None:
        for _ in range(5):
            received.extend((await receive(broker.receiving, queue, ReceiveRequest(message_filter=WANTED))).result)

    await asyncio.gather(*(receive_some() for _ in range(10)))
    assert len(set(numbers(received))) == len(received) == 50


async def test_matching_messages_are_delivered_in_order(broker: OpenBroker, queue: Queue) -> None:
    broker = replace(broker, search_limits=SearchLimits(batch_size=2))
    for priority in (0, 4, 9, 4, 9):
        await send(broker.sending, queue.name, new_messages("other", "s", priority=priority))
    received = [
        (await receive(broker.receiving, queue, ReceiveRequest(max_messages=most, message_filter=WANTED))).result
        for most in (1, 3, 9)
    ]
    assert [[message.priority for message in messages] for messages in received] == [[9], [9, 4, 4], [0]]
    alike = received[1][1:]
    assert numbers(alike) == sorted(numbers(alike))


async def test_matching_dead_letters_are_delivered_by_number(broker: OpenBroker, queue: Queue) -> None:
    broker = replace(broker, search_limits=SearchLimits(batch_size=2))
    for priority in (0, 9, 4):
        await send(broker.sending, queue.name, new_messages("s", "other", priority=priority))
    moves = [
        dead_letter_move(message)
        for message in (await receive(broker.receiving, queue, ReceiveRequest(max_messages=9))).result
    ]
    await broker.store.move(moves)
    receive_request = ReceiveRequest(max_messages=9, source=MessageState.DEAD_LETTERED, message_filter=WANTED)
    assert [message.priority for message in (await receive(broker.receiving, queue, receive_request)).result] == [
        0,
        9,
        4,
    ]


def dead_letter_move(message: Message) -> Move:
    return abandonment(message, outcome=Outcome.DEAD_LETTERED, state=MessageState.DEAD_LETTERED)
