"""A redrive keeps its rate and timeout, and moves no more messages into another queue than it has room for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from app.broker.administration.redrive import redrive
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import CelFilter, MatchAll
from app.broker.filtering.search_state import MAX_BATCH_SIZE
from app.broker.ports.maintaining import Redrive
from app.broker.sending.send import send
from app.domain.message import BodyKind, Envelope, MessageHeaders, MessageState
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.refusals import InvalidRequest, QueueFull, SendDisabled
from app.domain.sending import NewMessage
from tests.bounds import bounded
from tests.brokers import ChangedStore, CountingTally, OpenBroker, dead_letter_all, sqlite_broker
from tests.servers import TIMEOUT_SECONDS
from tests.virtual_clock import VirtualClock

ALL = MessageSelection([MessageState.DEAD_LETTERED], MatchAll())
ANSWER_SECONDS = 50.0


@dataclass
class Scene:
    """A queue of dead-lettered messages, and another queue."""

    broker: OpenBroker
    clock: VirtualClock
    queue: Queue
    other: Queue

    async def send_dead_lettered(self, count: int, body: bytes = b"") -> None:
        await send(
            self.broker.sending,
            self.queue.name,
            [NewMessage(Envelope("", MessageHeaders(subject="dead")), body, BodyKind.BYTES)] * count,
        )
        assert await dead_letter_all(self.broker.store, self.queue) == count

    async def set_other(self, **settings: Any) -> None:
        """Change the settings of the other queue."""
        changed = await self.broker.store.queues.change(self.other, replace(self.other.settings, **settings))
        assert changed is not None
        self.other = changed

    def redrive(
        self, rate: float | None = None, selection: MessageSelection = ALL, seconds: float = ANSWER_SECONDS
    ) -> Any:
        return redrive(self.broker.administration, self.queue, self.queue, selection, rate, seconds)

    def redrive_to_other(self, selection: MessageSelection = ALL) -> Any:
        return redrive(self.broker.administration, self.queue, self.other, selection, None, ANSWER_SECONDS)

    async def timed(self, work: Awaitable[int]) -> tuple[int, float]:
        """Return the result of the operation, and the seconds that it takes."""
        started_at = self.clock.monotonic()
        task = asyncio.ensure_future(work)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not task.done():
                await (self.clock.advance(0.25) if self.clock.timers else asyncio.sleep(0.001))
        return await task, self.clock.monotonic() - started_at

    async def available(self, queue: Queue) -> int:
        return (await self.broker.store.queues.counts([queue.id]))[queue.id].available


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    clock = VirtualClock()
    async with sqlite_broker("sqlite://", clock) as broker:
        queue, _ = await broker.store.queues.create("orders", QueueSettings())
        other, _ = await broker.store.queues.create("repairs", QueueSettings())
        yield Scene(broker, clock, queue, other)


# ---- rate and time ---------------------------------------------------------------------------------------------------


async def test_a_redrive_without_a_rate_moves_all_at_once(scene: Scene) -> None:
    await scene.send_dead_lettered(MAX_BATCH_SIZE + 1)
    assert await scene.timed(scene.redrive()) == (MAX_BATCH_SIZE + 1, 0)
    counters: Any = scene.broker.counters
    assert isinstance(counters, CountingTally)
    assert counters["messages_redriven"] == MAX_BATCH_SIZE + 1


@pytest.mark.parametrize(
    ("count", "rate", "moved", "seconds"),
    [(5, 2, 5, 2.5), (5, 0.1, 4, 40), (1, 1 / ANSWER_SECONDS, 1, ANSWER_SECONDS)],
    ids=["all", "until the timeout", "one at the timeout"],
)
async def test_a_redrive_with_a_rate_returns_when_the_next_message_may_move(
    scene: Scene, count: int, rate: float, moved: int, seconds: float
) -> None:
    await scene.send_dead_lettered(count)
    assert await scene.timed(scene.redrive(rate)) == (moved, seconds)


@pytest.mark.parametrize(("rate", "seconds", "first"), [(4, 50, 4), (4, 0.5, 2), (3, 0.5, 1), (1, 1.5, 1)], ids=str)
async def test_a_redrive_moves_the_messages_of_at_most_one_second_at_once(
    scene: Scene, rate: float, seconds: float, first: int
) -> None:
    await scene.send_dead_lettered(10)
    redriving = asyncio.ensure_future(scene.redrive(rate, seconds=seconds))
    for _ in bounded("the redrive waits"):
        if scene.clock.timers:
            break
        await asyncio.sleep(0.001)
    assert await scene.available(scene.queue) == first
    redriving.cancel()
    await asyncio.wait([redriving])


async def test_a_redrive_without_further_matches_does_not_wait(scene: Scene) -> None:
    await scene.send_dead_lettered(2)
    assert await scene.timed(scene.redrive(4, replace(ALL, limit=1))) == (1, 0.25)
    no_match = MessageSelection([MessageState.DEAD_LETTERED], CelFilter("message.subject == 'other'"))
    assert await scene.timed(scene.redrive(4, no_match)) == (0, 0)


async def test_a_rate_too_low_for_one_message_is_refused(scene: Scene) -> None:
    await scene.send_dead_lettered(1)
    with pytest.raises(InvalidRequest) as refused:
        await scene.redrive(0.99 / ANSWER_SECONDS)
    assert [error.pointer for error in refused.value.field_errors] == ["/rate_per_second"]
    assert await scene.available(scene.queue) == 0


# ---- redrives into another queue -------------------------------------------------------------------------------------


async def test_a_redrive_into_another_queue_moves_what_it_has_room_for(scene: Scene) -> None:
    await scene.send_dead_lettered(3)
    await scene.set_other(max_messages=2)
    assert await scene.redrive_to_other() == 2
    assert [message.sequence_number for message in await browsed(scene, scene.other)] == [1, 2]
    with pytest.raises(QueueFull):
        await scene.redrive_to_other()


async def test_a_redrive_into_its_own_full_queue_succeeds(scene: Scene) -> None:
    await scene.send_dead_lettered(2)
    changed = await scene.broker.store.queues.change(scene.queue, replace(scene.queue.settings, max_messages=1))
    assert changed is not None
    assert await redrive(scene.broker.administration, changed, changed, ALL, None) == 2


async def test_a_message_too_large_for_another_queue_stays(scene: Scene) -> None:
    await scene.set_other(max_message_bytes=100)
    await scene.send_dead_lettered(1, b"x" * 101)
    await scene.send_dead_lettered(1, b"x" * 100)
    assert await scene.redrive_to_other() == 1
    assert [message.sequence_number for message in await browsed(scene, scene.other)] == [2]
    assert await scene.redrive() == 1, "its own queue needs no room for it"


@pytest.mark.parametrize("count", [0, 1])
async def test_a_redrive_into_a_queue_with_sends_disabled_is_refused(scene: Scene, count: int) -> None:
    await scene.send_dead_lettered(count)
    await scene.set_other(status=QueueStatus.SEND_DISABLED)
    with pytest.raises(SendDisabled):
        await scene.redrive_to_other()


async def test_a_redrive_into_a_recreated_queue_with_sends_disabled_is_refused(scene: Scene) -> None:
    await scene.send_dead_lettered(1)
    assert await scene.broker.store.queues.delete(scene.other)
    await scene.broker.store.queues.create(scene.other.name, QueueSettings(status=QueueStatus.SEND_DISABLED))
    with pytest.raises(SendDisabled):
        await scene.redrive_to_other()


@pytest.mark.parametrize("again", [None, QueueSettings(status=QueueStatus.SEND_DISABLED)], ids=["gone", "disabled"])
async def test_a_redrive_whose_target_is_deleted_meanwhile_counts_what_has_moved(
    scene: Scene, again: QueueSettings | None
) -> None:
    await scene.send_dead_lettered(MAX_BATCH_SIZE + 1)
    store = scene.broker.store

    async def redrive_then_delete(redrives: Sequence[Redrive]) -> list[bool]:
        moved = await store.redrive(redrives)
        assert await store.queues.delete(scene.other)
        if again is not None:
            await store.queues.create(scene.other.name, again)
        return moved

    ports: Any = replace(scene.broker.administration, store=ChangedStore(store, redrive=redrive_then_delete))
    assert await redrive(ports, scene.queue, scene.other, ALL, None, ANSWER_SECONDS) == MAX_BATCH_SIZE
    counters: Any = scene.broker.counters
    assert counters["messages_redriven"] == MAX_BATCH_SIZE


async def browsed(scene: Scene, queue: Queue) -> Any:
    return await scene.broker.store.browse(queue.id, [MessageState.AVAILABLE], 0, 10)
