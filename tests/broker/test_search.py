"""A search that breaks off keeps nothing that its receiver does not hear of."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.broker import search
from app.broker.broker import Broker
from app.broker.filters import CelFilter
from app.broker.receive import Wish, receive
from app.broker.send import send
from app.domain.delivery import Place
from app.domain.message import Envelope, MessageState, Outline
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import Overloaded, StoreUnavailable
from app.domain.sending import Letter
from app.runtime.byte_budget import ByteBudget
from tests.bounds import bounded
from tests.clock import VirtualClock, settle
from tests.rooms import ANSWERS, sqlite_broker

WISH = Wish(most=5, matching=CelFilter("message.subject == 's'"))


class Broken:
    """A store in which something else happens instead of the look after so many."""

    def __init__(self, store: Any, looks: int, happens: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._left = looks
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def candidates(self, queue_id: int, source: MessageState, after: Place, most: int) -> Sequence[Outline]:
        if not self._left:
            await self._happens()
        self._left -= 1
        return await self._store.candidates(queue_id, source, after, most)


async def fails() -> None:
    raise StoreUnavailable


async def hangs() -> None:
    await asyncio.Event().wait()


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    monkeypatch.setattr(search, "LARGEST_LOOK", 2)
    async with sqlite_broker("sqlite://", VirtualClock()) as broker:
        yield broker


@pytest.fixture
async def queue(broker: Broker) -> Queue:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    await send(broker, queue, [Letter(Envelope("", subject="s"))] * 4)
    return queue


def breaking(broker: Broker, looks: int, happens: Callable[[], Awaitable[None]]) -> Broker:
    return replace(broker, store=Broken(broker.store, looks, happens))


async def available(broker: Broker, queue: Queue) -> int:
    return (await broker.store.queues.counts([queue.id]))[queue.id].available


async def test_what_was_claimed_before_a_failure_is_answered(broker: Broker, queue: Queue) -> None:
    assert len(await receive(breaking(broker, 1, fails), queue, WISH)) == 2
    assert await available(broker, queue) == 2


async def test_what_was_claimed_before_other_answers_took_all_room_is_answered(broker: Broker, queue: Queue) -> None:
    answers = ByteBudget(ANSWERS, Overloaded, patience_seconds=0.0)

    async def fill() -> None:
        answers.add(ANSWERS)

    full = replace(breaking(broker, 1, fill), answers=answers)
    assert len(await receive(full, queue, WISH)) == 2
    assert await available(broker, queue) == 2


async def test_a_failure_that_leaves_nothing_to_answer_is_told(broker: Broker, queue: Queue) -> None:
    with pytest.raises(StoreUnavailable):
        await receive(breaking(broker, 0, fails), queue, WISH)
    assert await available(broker, queue) == 4


async def test_what_was_claimed_for_one_who_has_gone_is_given_back_without_a_failure(
    broker: Broker, queue: Queue
) -> None:
    receiving = asyncio.create_task(receive(breaking(broker, 1, hangs), queue, WISH))
    for _ in bounded("the first claim takes something"):
        if await available(broker, queue) < 4:
            break
        await settle()
    receiving.cancel()
    await asyncio.wait([receiving])
    assert receiving.cancelled()
    messages = await receive(broker, queue, WISH)
    assert [(message.delivery_count, message.failure_count) for message in messages] == [(2, 0)] * 2 + [(1, 0)] * 2
