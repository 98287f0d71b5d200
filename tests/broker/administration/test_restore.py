"""A restore brings back what was purged or cancelled, as much as the queue has room for."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from app.broker.administration.edit import cancel
from app.broker.administration.plan import plan_restore
from app.broker.administration.purge import purge
from app.broker.administration.restore import _MAX_STEP_BYTES, restore
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import CelFilter, MatchAll
from app.broker.filtering.search_state import MAX_BATCH_SIZE
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.domain.instant import MINUTE
from app.domain.message import BodyKind, Envelope, MessageHeaders, MessageState, Receipt
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.refusals import QueueFull, QueueNotFound, SendDisabled
from app.domain.sending import NewMessage
from tests.brokers import ChangedStore, OpenBroker, sqlite_broker
from tests.virtual_clock import VirtualClock

ALL = MessageSelection((), MatchAll())
AVAILABLE = MessageSelection([MessageState.AVAILABLE], MatchAll())


@dataclass
class Scene:
    """A queue, and what its messages had in their bodies."""

    broker: OpenBroker
    clock: VirtualClock
    queue: Queue

    async def purge(self, count: int, size: int = 0, subject: str | None = None) -> None:
        """Send messages and purge the queue."""
        bodies = [b"%d" % number + b"x" * size for number in range(count)]
        messages = [NewMessage(Envelope("", MessageHeaders(subject=subject)), body, BodyKind.BYTES) for body in bodies]
        await send(self.broker.sending, self.queue.name, messages)
        assert await purge(self.broker.administration, self.queue, AVAILABLE) == count

    async def set(self, **settings: Any) -> None:
        """Change the settings of the queue."""
        changed = await self.broker.store.queues.change(self.queue, replace(self.queue.settings, **settings))
        assert changed is not None
        self.broker.queue_cache.forget(self.queue)
        self.queue = changed

    async def restore(self, selection: MessageSelection = ALL, since: int = 0, **limits: float) -> int:
        return await restore(self.broker.administration, self.queue, selection, since, **limits)

    async def planned(self, selection: MessageSelection = ALL, since: int = 0, **limits: float) -> tuple[int, bool]:
        """Return the count of a plan, and whether it is complete."""
        plan = await plan_restore(self.broker.administration, self.queue, selection, since, **limits)
        return plan.count, plan.is_complete

    async def available(self) -> int:
        return (await self.broker.store.queues.counts([self.queue.id]))[self.queue.id].available


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    clock = VirtualClock()
    async with sqlite_broker("sqlite://", clock) as broker:
        queue, _ = await broker.store.queues.create("orders", QueueSettings())
        yield Scene(broker, clock, queue)


async def test_purged_messages_return_in_their_order_once(scene: Scene) -> None:
    await scene.purge(MAX_BATCH_SIZE + 5)
    assert await scene.planned() == (MAX_BATCH_SIZE + 5, True)
    assert await scene.restore() == MAX_BATCH_SIZE + 5
    received = (await receive(scene.broker.receiving, scene.queue, ReceiveRequest(max_messages=1000))).result
    assert [int(message.body) for message in received] == list(range(MAX_BATCH_SIZE + 5))
    assert (await scene.planned(), await scene.restore()) == ((0, True), 0)
    counters: Any = scene.broker.counters
    assert counters["messages_restored"] == MAX_BATCH_SIZE + 5


async def test_cancelled_messages_return(scene: Scene) -> None:
    (receipt,) = (await send(scene.broker.sending, scene.queue.name, [NewMessage(Envelope(""))])).result
    await cancel(scene.broker.administration, scene.queue, receipt.sequence_number)
    assert await scene.restore() == 1
    assert await scene.available() == 1


async def test_filter_limit_and_time_select(scene: Scene) -> None:
    await scene.purge(3, subject="old")
    await scene.clock.advance(60)
    await scene.purge(4, subject="new")
    recent = scene.clock.now() - MINUTE // 2
    old = replace(ALL, message_filter=CelFilter("message.subject == 'old'"))
    for selection, since, count in (
        (old, recent, 0),
        (old, 0, 3),
        (replace(ALL, limit=1), recent, 1),
        (ALL, recent, 3),
    ):
        assert await scene.planned(selection, since) == (count, True)
        assert await scene.restore(selection, since) == count


async def test_a_restore_ends_when_the_queue_is_full(scene: Scene) -> None:
    await scene.purge(5)
    await scene.set(max_messages=2)
    assert await scene.planned() == (2, True)
    assert await scene.restore(replace(ALL, batch_size=1)) == 2
    for verb in (scene.restore, scene.planned):
        with pytest.raises(QueueFull):
            await verb()
        assert await verb(replace(ALL, limit=9, message_filter=CelFilter("message.priority == 9"))) in (0, (0, True))
    assert await scene.available() == 2


async def test_a_queue_that_accepts_no_sends_accepts_no_restore(scene: Scene) -> None:
    await scene.purge(1)
    await scene.set(status=QueueStatus.SEND_DISABLED)
    for verb in (scene.restore, scene.planned):
        with pytest.raises(SendDisabled):
            await verb()
    await scene.set(status=QueueStatus.ACTIVE)
    assert await scene.restore() == 1


async def test_a_queue_that_accepts_no_sends_refuses_a_restore_of_nothing(scene: Scene) -> None:
    await scene.set(status=QueueStatus.SEND_DISABLED)
    for verb in (scene.restore, scene.planned):
        with pytest.raises(SendDisabled):
            await verb()


async def test_messages_too_large_for_the_queue_stay_in_the_archive(scene: Scene) -> None:
    await scene.purge(1, size=100)
    await scene.purge(2)
    assert await scene.restore(replace(ALL, max_message_bytes=100)) == 2
    assert await scene.restore() == 1


async def test_a_restore_with_a_timeout_of_zero_restores_one_step(scene: Scene) -> None:
    await scene.purge(MAX_BATCH_SIZE + 1)
    assert await scene.planned(timeout_seconds=0) == (MAX_BATCH_SIZE, False)
    assert await scene.restore(timeout_seconds=0) == MAX_BATCH_SIZE
    no_match = replace(ALL, message_filter=CelFilter("message.priority == 9"))
    assert await scene.restore(no_match, timeout_seconds=0) == 0
    assert await scene.restore(timeout_seconds=0) == 1


async def test_a_restore_that_has_restored_ends_after_a_read_without_a_match(scene: Scene) -> None:
    await scene.purge(1)
    await scene.purge(2, size=100)
    reads = 0

    async def restorable(*arguments: Any, **named: Any) -> Any:
        nonlocal reads
        reads += 1
        await scene.clock.advance(1)
        return await original(*arguments, **named)

    original = scene.broker.store.restorable
    store: Any = ChangedStore(scene.broker.store, restorable=restorable)
    scene.broker = replace(scene.broker, store=store)
    small = replace(ALL, max_message_bytes=50, batch_size=1)
    assert await scene.restore(small, timeout_seconds=1.5) == 1
    assert reads == 2


async def test_one_step_restores_a_bounded_number_of_bytes(scene: Scene) -> None:
    await scene.purge(9, size=_MAX_STEP_BYTES // 4 - (8 << 10))
    steps: list[int] = []

    async def recorded(queue: Queue, numbers: list[int]) -> list[Receipt]:
        steps.append(len(numbers))
        assert scene.broker.response_limits.budget.held > 0
        return await original(queue, numbers)

    original = scene.broker.store.restore
    store: Any = ChangedStore(scene.broker.store, restore=recorded)
    scene.broker = replace(scene.broker, store=store)
    assert await scene.restore() == 9
    assert steps == [4, 4, 1]
    assert scene.broker.response_limits.budget.held == 0


async def test_a_restored_message_wakes_a_receiver(scene: Scene) -> None:
    await scene.purge(1)
    woken: list[tuple[int, int]] = []

    class Notifier:
        def notify(self, queue_id: int, count: int = 1, _numbers: Any = ()) -> None:
            woken.append((queue_id, count))

    notifier: Any = Notifier()
    scene.broker = replace(scene.broker, notifier=notifier)
    await scene.restore()
    assert woken == [(scene.queue.id, 1)]


async def test_messages_return_to_the_queue_that_has_the_name_now(scene: Scene) -> None:
    await scene.purge(2)
    assert await scene.broker.store.queues.delete(scene.queue)
    with pytest.raises(QueueNotFound):
        await scene.restore()
    again, _ = await scene.broker.store.queues.create("orders", QueueSettings())
    assert await scene.restore() == 2
    scene.queue = again
    assert await scene.available() == 2


async def test_no_message_returns_to_a_new_queue_of_the_name_that_accepts_no_sends(scene: Scene) -> None:
    await scene.purge(1)
    assert await scene.broker.store.queues.delete(scene.queue)
    disabled = QueueSettings(status=QueueStatus.SEND_DISABLED)
    again, _ = await scene.broker.store.queues.create("orders", disabled)
    with pytest.raises(SendDisabled):
        await scene.restore()
    scene.queue = again
    assert await scene.available() == 0


async def test_a_message_that_is_purged_during_a_restore_is_left_out(scene: Scene) -> None:
    """Otherwise a purge beside it would keep the restore busy until its timeout."""
    await scene.purge(2)

    async def purged_at_once(queue: Queue, numbers: list[int]) -> list[Receipt]:
        await scene.clock.advance(1)
        restored = await original(queue, numbers)
        await purge(scene.broker.administration, scene.queue, AVAILABLE)
        return restored

    original = scene.broker.store.restore
    store: Any = ChangedStore(scene.broker.store, restore=purged_at_once)
    scene.broker = replace(scene.broker, store=store)
    assert await scene.restore(replace(ALL, batch_size=1)) == 2
