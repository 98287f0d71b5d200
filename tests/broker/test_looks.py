"""What looks read is bounded for all of them together: one after the other, and nothing of a look is kept but numbers."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from app.broker import browse as browsing
from app.broker import purge as purging
from app.broker.broker import Broker
from app.broker.browse import browse
from app.broker.filters import CelFilter, Everything
from app.broker.looks import look_through
from app.broker.purge import Choice, purge, redrive
from app.broker.receive import Wish, receive
from app.broker.send import send
from app.domain.delivery import AHEAD_OF_ALL
from app.domain.message import Envelope, MessageState, Outline
from app.domain.queue import Queue, QueueSettings
from app.domain.sending import Letter
from app.domain.weight import ROW_BYTES
from tests.clock import VirtualClock
from tests.rooms import sqlite_broker

LOOK = 10
ALL = CelFilter("message.priority == 4")


class Watched:
    """A store that counts the outlines that are in memory whenever it is asked for something."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.most_kept = 0
        self.at_once = 0
        self._under_way = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in ("claim_these", "read_these", "withdraw", "redrive"):
            return partial(self._count, found)
        return partial(self._look, found) if name in ("outlines", "outlines_of", "candidates") else found

    async def _count(self, ask: Callable[..., Awaitable[Any]], *given: Any) -> Any:
        self.most_kept = max(self.most_kept, sum(isinstance(one, Outline) for one in gc.get_objects()))
        return await ask(*given)

    async def _look(self, ask: Callable[..., Awaitable[Sequence[Outline]]], *given: Any) -> Sequence[Outline]:
        self._under_way += 1
        self.at_once = max(self.at_once, self._under_way)
        await asyncio.sleep(0)
        seen = await self._count(ask, *given)
        self._under_way -= 1
        return seen


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Broker, Queue, Watched]]:
    monkeypatch.setattr(purging, "BATCH_SIZE", LOOK)
    monkeypatch.setattr(browsing, "BATCH_SIZE", LOOK)
    async with sqlite_broker("sqlite://", VirtualClock()) as broker:
        queue, _ = await broker.store.queues.create("orders", QueueSettings())
        await send(broker, queue, [Letter(Envelope(""))] * 5 * LOOK)
        store = Watched(broker.store)
        yield replace(broker, store=store), queue, store


def pages(broker: Broker, queue: Queue) -> Awaitable[Any]:
    states = [MessageState.AVAILABLE]
    return asyncio.gather(*(browse(broker, queue, states, Everything(), 0, 4 * LOOK) for _ in range(10)))


def purges(broker: Broker, queue: Queue) -> Awaitable[Any]:
    choice = Choice([MessageState.AVAILABLE], Everything())
    return asyncio.gather(*(purge(broker, queue, choice) for _ in range(10)))


def redrives(broker: Broker, queue: Queue) -> Awaitable[Any]:
    choice = Choice([MessageState.AVAILABLE], Everything(), limit=3 * LOOK)
    return asyncio.gather(*(redrive(broker, queue, queue, choice, None) for _ in range(10)))


def filtered_page(broker: Broker, queue: Queue) -> Awaitable[Any]:
    return browse(broker, queue, [MessageState.AVAILABLE], ALL, 0, 4 * LOOK)


def filtered_receive(broker: Broker, queue: Queue) -> Awaitable[Any]:
    return receive(broker, queue, Wish(most=4 * LOOK, matching=ALL))


@pytest.mark.parametrize("work", [pages, purges, redrives, filtered_page, filtered_receive])
async def test_nothing_of_a_look_is_kept_but_a_few_numbers(
    scene: tuple[Broker, Queue, Watched], work: Callable[[Broker, Queue], Awaitable[Any]]
) -> None:
    broker, queue, store = scene
    gc.collect()
    gc.freeze()  # what was there before is not looked through again and again
    try:
        async with asyncio.timeout(60):
            await work(broker, queue)
    finally:
        gc.unfreeze()
    assert store.at_once == 1
    assert store.most_kept == 0


async def test_a_look_weighs_the_rows_and_properties_that_it_reads(scene: tuple[Broker, Queue, Watched]) -> None:
    broker, queue, _ = scene
    await send(broker, queue, [Letter(Envelope("", properties=b'{"a":1}'), priority=9)])
    read = partial(broker.store.candidates, queue.id, MessageState.AVAILABLE, AHEAD_OF_ALL, 3)
    look = await look_through(broker, ALL, read)
    assert (look.count, len(look.matches)) == (3, 2)
    assert look.weight == 3 * ROW_BYTES + len(b'{"a":1}')
