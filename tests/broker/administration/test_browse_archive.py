"""A page of the archive has the newest wanted messages, is limited in rows and time, and says where the next one begins."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from app.broker.administration.archive import AFTER_ALL, browse_archive, read_archived
from app.broker.administration.page_limits import PageLimits
from app.broker.administration.ports import AdministrationPorts
from app.broker.administration.purge import purge
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import MatchAll
from app.broker.filtering.search_state import SearchRegistry
from app.broker.sending.send import send
from app.domain.archive import ArchivedMessage
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import Overloaded
from app.domain.sending import NewMessage
from tests.brokers import ChangedStore, sqlite_broker
from tests.virtual_clock import VirtualClock

COUNT = 8


@dataclass
class Scene:
    """Two queues, of which the first one had eight messages, numbered from 1. All have ended."""

    ports: AdministrationPorts
    clock: VirtualClock
    queue: Queue
    other: Queue

    async def page(self, limit: int, before: int = AFTER_ALL, *, only: str = "") -> tuple[list[int], int | None]:
        """Return the sequence numbers on a page, and the start of the next one. `only` are the wanted message ids."""

        def is_wanted(message: ArchivedMessage) -> bool:
            return not only or message.envelope.message_id in only

        found, following = await browse_archive(self.ports, is_wanted, before, limit)
        return [message.sequence_number for message in found], following

    def read_slowly(self, seconds: float) -> None:
        """Let each read take this time."""
        archive = self.ports.store.archive

        async def ended_before(before: int, limit: int) -> list[ArchivedMessage]:
            await self.clock.advance(seconds)
            return await archive.ended_before(before, limit)

        slow = ChangedStore(archive, ended_before=ended_before)
        store: Any = ChangedStore(self.ports.store, archive=slow)
        self.ports = replace(self.ports, store=store)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    clock = VirtualClock()
    async with sqlite_broker("sqlite://", clock) as broker:
        queue, _ = await broker.store.queues.create("orders", QueueSettings())
        other, _ = await broker.store.queues.create("other", QueueSettings())
        await send(broker.sending, queue.name, [NewMessage(Envelope(str(number + 1))) for number in range(COUNT)])
        await purge(broker.administration, queue, MessageSelection([MessageState.AVAILABLE], MatchAll()))
        yield Scene(replace(broker.administration, page_limits=PageLimits(batch_size=3)), clock, queue, other)


async def test_a_page_starts_where_the_previous_one_ends(scene: Scene) -> None:
    assert await scene.page(5) == ([8, 7, 6, 5, 4], 4)
    assert await scene.page(2, 4) == ([3, 2], 2)
    assert await scene.page(1, 2) == ([1], None)
    assert await scene.page(COUNT) == (list(range(COUNT, 0, -1)), None)


async def test_a_page_is_refused_if_the_process_already_reads_for_too_many_requests(scene: Scene) -> None:
    searches = SearchRegistry(scene.clock, max_receivers=1, max_requests=1)
    scene.ports = replace(scene.ports, searches=searches)
    with searches.admit_filtered(), pytest.raises(Overloaded, match="already reads for 1 requests with a filter"):
        await scene.page(1)
    assert await scene.page(1) == ([8], 8)


async def test_a_page_has_only_wanted_messages(scene: Scene) -> None:
    assert await scene.page(5, only="28") == ([8, 2], None)
    assert await scene.page(1, only="28") == ([8], 8)
    assert await scene.page(1, 8, only="28") == ([2], None)


async def test_a_page_ends_after_its_time_and_the_next_one_goes_on(scene: Scene) -> None:
    seconds = scene.ports.page_limits.max_seconds
    scene.read_slowly(seconds)
    assert await scene.page(5, only="1") == ([], 6)
    # All searches of a process share half of its time.
    await scene.clock.advance(seconds)
    assert await scene.page(5, 6, only="1") == ([], 3)
    await scene.clock.advance(seconds)
    assert await scene.page(5, 3, only="1") == ([1], None)


async def test_a_page_ends_after_its_statements(scene: Scene) -> None:
    scene.ports = replace(scene.ports, page_limits=PageLimits(batch_size=2, max_batches=2))
    assert await scene.page(5, only="1") == ([], 5)


async def test_a_message_of_the_archive_is_read_by_its_queue_and_number(scene: Scene) -> None:
    found = await read_archived(scene.ports, scene.queue, 3)
    assert found is not None
    assert found.envelope.message_id == "3"
    assert await read_archived(scene.ports, scene.other, 3) is None
    assert await read_archived(scene.ports, scene.queue, COUNT + 1) is None
