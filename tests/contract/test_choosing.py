"""A receive through a filter gets what matches, whoever else receives, on every store."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.broker import search
from app.broker.broker import Broker
from app.broker.filters import CelFilter
from app.broker.receive import Wish, receive
from app.broker.send import send
from app.domain.message import Envelope, Message, MessageState
from app.domain.queue import Queue
from app.domain.sending import Letter
from app.domain.settlement import Move, Outcome
from tests.clock import VirtualClock
from tests.contract.subject import Subject, abandonment, numbers
from tests.rooms import assemble

WANTED = CelFilter("message.subject == 's'")


@pytest.fixture
async def broker(subject: Subject) -> AsyncIterator[Broker]:
    broker = assemble(subject.store, VirtualClock())
    yield broker
    await broker.catalogue.close()


def letters(*subjects: str, priority: int = 4) -> list[Letter]:
    return [Letter(Envelope("", subject=subject), priority=priority) for subject in subjects]


async def test_receivers_side_by_side_are_all_served_while_anything_matches(broker: Broker, queue: Queue) -> None:
    await send(broker, queue, letters(*"s" * 300))
    received: list[Message] = []

    async def receive_some() -> None:
        for _ in range(5):
            received.extend(await receive(broker, queue, Wish(matching=WANTED)))

    await asyncio.gather(*(receive_some() for _ in range(10)))
    assert len(set(numbers(received))) == len(received) == 50


async def test_what_matches_comes_in_the_order_of_delivery(
    broker: Broker, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "LARGEST_LOOK", 2)
    for priority in (0, 4, 9, 4, 9):
        await send(broker, queue, letters("other", "s", priority=priority))
    received = [await receive(broker, queue, Wish(most=most, matching=WANTED)) for most in (1, 3, 9)]
    assert [[message.priority for message in messages] for messages in received] == [[9], [9, 4, 4], [0]]
    alike = received[1][1:]
    assert numbers(alike) == sorted(numbers(alike))


async def test_dead_letters_that_match_come_by_number(
    broker: Broker, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "LARGEST_LOOK", 2)
    for priority in (0, 9, 4):
        await send(broker, queue, letters("s", "other", priority=priority))
    moves = [dead(message) for message in await receive(broker, queue, Wish(most=9))]
    await broker.store.move(moves)
    wish = Wish(most=9, source=MessageState.DEAD_LETTERED, matching=WANTED)
    assert [message.priority for message in await receive(broker, queue, wish)] == [0, 9, 4]


def dead(message: Message) -> Move:
    return abandonment(message, outcome=Outcome.DEAD_LETTERED, state=MessageState.DEAD_LETTERED)
