"""Reads are limited for all operations together: they run one at a time, and only summaries of matches are kept."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from app.broker.administration.browse import browse
from app.broker.administration.page_limits import PageLimits
from app.broker.administration.plan import plan_selection
from app.broker.administration.purge import purge
from app.broker.administration.redrive import redrive
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filtered_read import read_filtered
from app.broker.filtering.filters import CelFilter, MatchAll
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.domain.delivery import START_POSITION
from app.domain.message import Envelope, MessageMetadata, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.sending import NewMessage
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from tests.brokers import OpenBroker, result_of, sqlite_broker
from tests.virtual_clock import VirtualClock

BATCH_SIZE = 10
ALL = CelFilter("message.priority == 4")


class CountingStore:
    """A store that counts the metadata objects in memory at each call."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.max_in_memory = 0
        self.max_concurrent = 0
        self._concurrent = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in ("claim_by_number", "read_many", "withdraw", "redrive"):
            return partial(self._count, found)
        return partial(self._read, found) if name in ("browse_metadata", "read_metadata", "candidates") else found

    async def _count(self, method: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        self.max_in_memory = max(
            self.max_in_memory, sum(isinstance(tracked, MessageMetadata) for tracked in gc.get_objects())
        )
        return await method(*arguments)

    async def _read(
        self, method: Callable[..., Awaitable[Sequence[MessageMetadata]]], *arguments: Any
    ) -> Sequence[MessageMetadata]:
        self._concurrent += 1
        self.max_concurrent = max(self.max_concurrent, self._concurrent)
        await asyncio.sleep(0)
        messages = await self._count(method, *arguments)
        self._concurrent -= 1
        return messages


@pytest.fixture
async def scene() -> AsyncIterator[tuple[OpenBroker, Queue, CountingStore]]:
    async with sqlite_broker("sqlite://", VirtualClock()) as broker:
        queue, _ = await broker.store.queues.create("orders", QueueSettings())
        await send(broker.sending, queue.name, [NewMessage(Envelope(""))] * 5 * BATCH_SIZE)
        store = CountingStore(broker.store)
        yield replace(broker, store=store, page_limits=PageLimits(batch_size=BATCH_SIZE)), queue, store


def pages(broker: OpenBroker, queue: Queue) -> Awaitable[Any]:
    states = [MessageState.AVAILABLE]
    return asyncio.gather(
        *(browse(broker.administration, queue, states, MatchAll(), 0, 4 * BATCH_SIZE) for _ in range(10))
    )


def purges(broker: OpenBroker, queue: Queue) -> Awaitable[Any]:
    selection = MessageSelection([MessageState.AVAILABLE], MatchAll(), batch_size=BATCH_SIZE)
    return asyncio.gather(*(purge(broker.administration, queue, selection) for _ in range(10)))


def redrives(broker: OpenBroker, queue: Queue) -> Awaitable[Any]:
    selection = MessageSelection([MessageState.AVAILABLE], MatchAll(), limit=3 * BATCH_SIZE, batch_size=BATCH_SIZE)
    return asyncio.gather(*(redrive(broker.administration, queue, queue, selection, None) for _ in range(10)))


def plans(broker: OpenBroker, queue: Queue) -> Awaitable[Any]:
    selection = MessageSelection([MessageState.AVAILABLE], MatchAll(), batch_size=BATCH_SIZE)
    return asyncio.gather(*(plan_selection(broker.administration, queue, selection) for _ in range(10)))


def filtered_page(broker: OpenBroker, queue: Queue) -> Awaitable[Any]:
    return browse(broker.administration, queue, [MessageState.AVAILABLE], ALL, 0, 4 * BATCH_SIZE)


def filtered_receive(broker: OpenBroker, queue: Queue) -> Awaitable[Any]:
    return result_of(receive(broker.receiving, queue, ReceiveRequest(max_messages=4 * BATCH_SIZE, message_filter=ALL)))


@pytest.mark.parametrize("work", [pages, purges, redrives, plans, filtered_page, filtered_receive])
async def test_a_read_keeps_only_summaries_of_its_matches(
    scene: tuple[OpenBroker, Queue, CountingStore], work: Callable[[OpenBroker, Queue], Awaitable[Any]]
) -> None:
    broker, queue, store = scene
    gc.collect()
    gc.freeze()  # earlier objects are not scanned at each collection
    try:
        async with asyncio.timeout(60):
            await work(broker, queue)
    finally:
        gc.unfreeze()
    assert store.max_concurrent == 1
    assert store.max_in_memory == 0


async def test_the_weight_of_a_read_counts_its_rows_and_properties(
    scene: tuple[OpenBroker, Queue, CountingStore],
) -> None:
    broker, queue, _ = scene
    await send(broker.sending, queue.name, [NewMessage(Envelope("", properties=b'{"a":1}'), priority=9)])
    read = partial(broker.store.candidates, queue.id, MessageState.AVAILABLE, START_POSITION, 3)
    batch = await read_filtered(broker.searches, ALL, read)
    assert (batch.count, len(batch.matches)) == (3, 2)
    assert batch.weight == 3 * MESSAGE_OVERHEAD_BYTES + len(b'{"a":1}')
