"""An interrupted search keeps no message locked that its receiver does not get."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.broker.filtering.filters import CelFilter
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.receiving.search_limits import SearchLimits
from app.broker.sending.send import send
from app.domain.delivery import DeliveryPosition
from app.domain.message import Envelope, MessageHeaders, MessageMetadata, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import Overloaded, StoreUnavailable
from app.domain.sending import NewMessage
from app.runtime.byte_budget import ByteBudget
from tests.bounds import bounded
from tests.brokers import ANSWER_BYTES, OpenBroker, result_of, sqlite_broker
from tests.virtual_clock import VirtualClock, run_ready_tasks

RECEIVE_REQUEST = ReceiveRequest(max_messages=5, message_filter=CelFilter("message.subject == 's'"))


class InterruptedStore:
    """A store in which something else happens instead of a read, after the given number of reads."""

    def __init__(self, store: Any, reads: int, interrupt: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._left = reads
        self._interrupt = interrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def candidates(
        self, queue_id: int, source: MessageState, after: DeliveryPosition, most: int
    ) -> Sequence[MessageMetadata]:
        if not self._left:
            await self._interrupt()
        self._left -= 1
        return await self._store.candidates(queue_id, source, after, most)


async def raise_unavailable() -> None:
    raise StoreUnavailable


async def wait_forever() -> None:
    await asyncio.Event().wait()


@pytest.fixture
async def broker() -> AsyncIterator[OpenBroker]:
    async with sqlite_broker("sqlite://", VirtualClock()) as broker:
        yield replace(broker, search_limits=SearchLimits(batch_size=2))


@pytest.fixture
async def queue(broker: OpenBroker) -> Queue:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    await send(broker.sending, queue.name, [NewMessage(Envelope("", MessageHeaders(subject="s")))] * 4)
    return queue


def interrupted_broker(broker: OpenBroker, reads: int, interrupt: Callable[[], Awaitable[None]]) -> OpenBroker:
    return replace(broker, store=InterruptedStore(broker.store, reads, interrupt))


async def available(broker: OpenBroker, queue: Queue) -> int:
    return (await broker.store.queues.counts([queue.id]))[queue.id].available


async def test_messages_claimed_before_a_failure_are_returned(broker: OpenBroker, queue: Queue) -> None:
    assert (
        len((await receive(interrupted_broker(broker, 1, raise_unavailable).receiving, queue, RECEIVE_REQUEST)).result)
        == 2
    )
    assert await available(broker, queue) == 2


async def test_messages_claimed_before_the_byte_budget_is_full_are_returned(broker: OpenBroker, queue: Queue) -> None:
    answers = ByteBudget(ANSWER_BYTES, Overloaded, timeout_seconds=0.0)

    async def fill() -> None:
        answers.acquire_unchecked(ANSWER_BYTES)

    full = replace(interrupted_broker(broker, 1, fill), response_limits=replace(broker.response_limits, budget=answers))
    assert len((await receive(full.receiving, queue, RECEIVE_REQUEST)).result) == 2
    assert await available(broker, queue) == 2


async def test_a_failure_before_the_first_claim_is_raised(broker: OpenBroker, queue: Queue) -> None:
    with pytest.raises(StoreUnavailable):
        await receive(interrupted_broker(broker, 0, raise_unavailable).receiving, queue, RECEIVE_REQUEST)
    assert await available(broker, queue) == 4


async def test_messages_of_a_cancelled_receive_are_released_uncounted(broker: OpenBroker, queue: Queue) -> None:
    receiving = asyncio.create_task(
        result_of(receive(interrupted_broker(broker, 1, wait_forever).receiving, queue, RECEIVE_REQUEST))
    )
    for _ in bounded("the first claim takes something"):
        if await available(broker, queue) < 4:
            break
        await run_ready_tasks()
    receiving.cancel()
    await asyncio.wait([receiving])
    assert receiving.cancelled()
    messages = (await receive(broker.receiving, queue, RECEIVE_REQUEST)).result
    assert [(message.delivery_count, message.failure_count) for message in messages] == [(1, 0)] * 4
