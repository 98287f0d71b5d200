"""A page is limited in messages, weight, time and bytes read, and returns the start of the next page."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from app.broker.administration.browse import browse, read_message
from app.broker.administration.page_limits import _BATCH_SIZE, MAX_SECONDS, PageLimits
from app.broker.filtering.filters import CelFilter, Filter, MatchAll
from app.broker.ports.store import Store
from app.broker.sending.send import send
from app.domain.message import Envelope, MessageMetadata, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import MessageNotFound
from app.domain.sending import NewMessage
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from tests.brokers import OpenBroker, sqlite_broker
from tests.virtual_clock import VirtualClock

COUNT = 8


class SlowStore:
    """A store with slow reads; it records how many messages each read asks for."""

    def __init__(self, store: Any, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self.seconds = 0.0
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def browse_metadata(
        self, queue_id: int, states: Sequence[MessageState], after: int, most: int
    ) -> Sequence[MessageMetadata]:
        self.sizes.append(most)
        await self._clock.advance(self.seconds)
        return await self._store.browse_metadata(queue_id, states, after, most)


@dataclass
class Scene:
    """A queue of eight messages, numbered from 1."""

    broker: OpenBroker
    store: SlowStore
    queue: Queue

    async def page(self, most: int, after: int = 0, matching: Filter | None = None) -> tuple[list[int], int | None]:
        """Return the sequence numbers of the messages on a page, and the start of the next page."""
        states = [MessageState.AVAILABLE]
        found, following = await browse(
            self.broker.administration, self.queue, states, matching or MatchAll(), after, most
        )
        return [message.sequence_number for message in found], following


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    clock = VirtualClock()
    async with sqlite_broker("sqlite://", clock) as broker:
        queue, _ = await broker.store.queues.create("orders", QueueSettings())
        await send(broker.sending, queue.name, [NewMessage(Envelope(""))] * COUNT)
        store = SlowStore(broker.store, clock)
        yield Scene(replace(broker, store=cast("Store", store)), store, queue)


@pytest.mark.parametrize("matching", [MatchAll(), CelFilter("true")], ids=["all", "filtered"])
async def test_a_page_starts_where_the_previous_one_ends(scene: Scene, matching: Filter) -> None:
    assert await scene.page(5, 0, matching) == ([1, 2, 3, 4, 5], 5)
    assert await scene.page(2, 5, matching) == ([6, 7], 7)
    assert await scene.page(1, 7, matching) == ([8], None)
    assert await scene.page(COUNT, 0, matching) == (list(range(1, COUNT + 1)), None)


async def test_a_page_reads_one_extra_message_and_a_filtered_page_a_batch(scene: Scene) -> None:
    await scene.page(3)
    await scene.page(3, 0, CelFilter("true"))
    await scene.page(10 * _BATCH_SIZE)
    assert scene.store.sizes == [4, _BATCH_SIZE, _BATCH_SIZE]


async def test_a_page_weighs_no_more_than_a_response_may(scene: Scene) -> None:
    scene.broker = replace(
        scene.broker, response_limits=replace(scene.broker.response_limits, max_bytes=3 * MESSAGE_OVERHEAD_BYTES)
    )
    assert await scene.page(5) == ([1, 2, 3], 3)
    assert await scene.page(5, 3) == ([4, 5, 6], 6)
    assert await scene.page(5, 6) == ([7, 8], None)
    assert await scene.page(3, 5) == ([6, 7, 8], None), "as much as a response may"


async def test_a_page_ends_at_its_time_limit(scene: Scene) -> None:
    scene.broker = replace(scene.broker, page_limits=PageLimits(batch_size=2))
    scene.store.seconds = MAX_SECONDS / 2
    assert await scene.page(COUNT) == ([1, 2, 3, 4], 4)


@pytest.mark.parametrize(
    ("most_bytes", "count"), [(4 * MESSAGE_OVERHEAD_BYTES, 4), (4 * MESSAGE_OVERHEAD_BYTES + 1, 6)]
)
async def test_a_page_ends_at_its_byte_limit(scene: Scene, most_bytes: int, count: int) -> None:
    scene.broker = replace(scene.broker, page_limits=PageLimits(batch_size=2, max_bytes=most_bytes))
    assert await scene.page(COUNT) == (list(range(1, count + 1)), count)


async def test_a_message_is_read_by_its_sequence_number(scene: Scene) -> None:
    assert (await read_message(scene.broker.administration, scene.queue, 3)).sequence_number == 3
    with pytest.raises(MessageNotFound, match=f"holds no message {COUNT + 1}"):
        await read_message(scene.broker.administration, scene.queue, COUNT + 1)
