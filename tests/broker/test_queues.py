"""A queue changes on the condition that its author sets, and every process hears of it."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from app.broker.broker import Broker
from app.broker.ports import Locks, Queues, Store
from app.broker.queues import (
    MOST_TRIES,
    Condition,
    change_queue,
    delete_queue,
    fresh,
    list_queues,
    put_queue,
    show_queue,
    take_locks,
)
from app.broker.receive import Wish, receive
from app.broker.send import send
from app.domain.instant import MINUTE
from app.domain.message import Envelope
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.refusals import PreconditionFailed, QueueNotFound, StoreUnavailable
from app.domain.sending import Letter
from app.domain.settlement import HIGHEST_GENERATION, token_of
from tests.broker.others import Processes, Records
from tests.rooms import dead_letter_all

SETTINGS = QueueSettings(description="as it was")
CHANGED = QueueSettings(description="as it is")


@pytest.fixture
async def queue(broker: Broker) -> Queue:
    queue, made = await put_queue(broker, "orders", SETTINGS)
    assert made
    return queue


class Crowded:
    """Queues that another process is about to change whenever this one does."""

    def __init__(self, queues: Queues, happens: Callable[[], Awaitable[object]], times: int) -> None:
        self._queues = queues
        self._happens = happens
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queues, name)

    async def change(self, queue: Queue, settings: QueueSettings) -> Queue | None:
        await self._interrupt()
        return await self._queues.change(queue, settings)

    async def delete(self, queue: Queue) -> bool:
        await self._interrupt()
        return await self._queues.delete(queue)

    async def _interrupt(self) -> None:
        if self._left:
            self._left -= 1
            await self._happens()


class Over:
    """A store with other queues."""

    def __init__(self, store: Store, queues: Any) -> None:
        self._store = store
        self.queues = queues

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def crowded(broker: Broker, times: int, happens: Callable[[], Awaitable[object]] | None = None) -> Broker:
    """A broker whose first `times` changes each come after another event; by default after another change."""

    async def another_change() -> None:
        queue = await fresh(broker, "orders")
        seconds = queue.settings.archive_retention + 1
        assert await broker.store.queues.change(queue, replace(queue.settings, archive_retention=seconds))

    queues = Crowded(broker.store.queues, happens or another_change, times)
    return replace(broker, store=cast("Store", Over(broker.store, queues)))


def describe(settings: QueueSettings) -> QueueSettings:
    return replace(settings, description="described")


# ---- conditions ------------------------------------------------------------------------------------------------------


async def test_a_queue_is_put_once_and_then_changed(broker: Broker, queue: Queue) -> None:
    changed, made = await put_queue(broker, queue.name, CHANGED)
    assert (changed.id, changed.settings, made) == (queue.id, CHANGED, False)
    assert await put_queue(broker, queue.name, CHANGED) == (changed, False), "equal settings change nothing"


async def test_only_an_edition_that_is_wanted_changes(broker: Broker, queue: Queue) -> None:
    condition = Condition(wanted=[queue.edition])
    changed, made = await put_queue(broker, queue.name, CHANGED, condition)
    assert (changed.settings, made) == (CHANGED, False)
    with pytest.raises(PreconditionFailed, match="was changed or made again"):
        await put_queue(broker, queue.name, SETTINGS, condition)
    with pytest.raises(PreconditionFailed):
        await change_queue(broker, changed, describe, condition)
    with pytest.raises(PreconditionFailed):
        await delete_queue(broker, changed, condition)
    assert await fresh(broker, queue.name) == changed
    with pytest.raises(PreconditionFailed, match="no queue named repairs"):
        await put_queue(broker, "repairs", SETTINGS, condition)


async def test_an_edition_that_is_unwanted_does_not_change(broker: Broker, queue: Queue) -> None:
    with pytest.raises(PreconditionFailed, match="There is a queue named orders already"):
        await put_queue(broker, queue.name, CHANGED, Condition(unwanted=[queue.edition]))
    changed, _ = await put_queue(broker, queue.name, CHANGED, Condition(unwanted=["another"]))
    assert changed.settings == CHANGED


async def test_what_is_missing_is_not_found(broker: Broker, queue: Queue) -> None:
    await delete_queue(broker, queue)
    for missed in (
        fresh(broker, queue.name),
        show_queue(broker, queue.name),
        change_queue(broker, queue, describe),
        delete_queue(broker, queue),
    ):
        with pytest.raises(QueueNotFound):
            await missed


# ---- at the same time ------------------------------------------------------------------------------------------------


async def test_a_change_takes_in_what_others_change_meanwhile(broker: Broker, queue: Queue) -> None:
    changed = await change_queue(crowded(broker, 2), queue, describe)
    assert changed.settings == describe(replace(queue.settings, archive_retention=queue.settings.archive_retention + 2))


async def test_a_deletion_takes_the_queue_as_others_leave_it(broker: Broker, queue: Queue) -> None:
    await delete_queue(crowded(broker, 2), queue)
    assert await broker.store.queues.find(queue.name) is None


async def test_a_condition_holds_for_what_others_leave(broker: Broker, queue: Queue) -> None:
    condition = Condition(wanted=[queue.edition])
    with pytest.raises(PreconditionFailed):
        await change_queue(crowded(broker, 1), queue, describe, condition)
    with pytest.raises(PreconditionFailed):
        await delete_queue(crowded(broker, 1), await fresh(broker, queue.name), condition)


async def test_after_too_many_changes_of_others_the_request_gives_up(broker: Broker, queue: Queue) -> None:
    busy = crowded(broker, MOST_TRIES)
    with pytest.raises(StoreUnavailable, match="changed nothing"):
        await change_queue(busy, queue, describe)
    with pytest.raises(StoreUnavailable, match="changed nothing"):
        await delete_queue(crowded(broker, MOST_TRIES), await fresh(broker, queue.name))
    assert (await fresh(broker, queue.name)).settings.description == SETTINGS.description


async def test_a_queue_that_is_deleted_while_it_is_put_is_made_again(broker: Broker, queue: Queue) -> None:
    deleting = crowded(broker, 1, lambda: broker.store.queues.delete(queue))
    made_again, made = await put_queue(deleting, queue.name, CHANGED)
    assert (made_again.settings, made) == (CHANGED, True)
    assert made_again.id != queue.id


# ---- who hears of it -------------------------------------------------------------------------------------------------


async def test_a_change_and_a_deletion_are_heard_of_everywhere(broker: Broker, queue: Queue) -> None:
    processes = Processes()
    told = replace(broker, bells=processes)
    assert await broker.catalogue.named(queue.name) == queue
    changed = await change_queue(told, queue, describe)
    assert await broker.catalogue.named(queue.name) == changed
    assert processes.changes_of_queues == 1
    await change_queue(told, changed, describe)
    assert processes.changes_of_queues == 1, "nothing has changed"
    await delete_queue(told, changed)
    assert processes.changes_of_queues == 2
    with pytest.raises(QueueNotFound):
        await broker.catalogue.named(queue.name)


@pytest.mark.parametrize("closed", [QueueStatus.RECEIVE_DISABLED, QueueStatus.DISABLED])
async def test_a_queue_that_opens_again_wakes_a_receiver_for_each_message(
    broker: Broker, queue: Queue, closed: QueueStatus
) -> None:
    await send(broker, queue, [Letter(Envelope(""))] * 3)
    await dead_letter_all(broker.store, queue)
    await send(broker, queue, [Letter(Envelope(""))] * 2)
    processes = Processes()
    told = replace(broker, bells=processes)
    shut = await change_queue(told, queue, lambda settings: replace(settings, status=closed))
    described = await change_queue(told, shut, describe)
    assert processes.rung == []
    opened = await change_queue(told, described, lambda settings: replace(settings, status=QueueStatus.ACTIVE))
    assert processes.rung == [(queue.id, 2), (-queue.id, 3)]
    await change_queue(told, opened, lambda settings: replace(settings, description="open"))
    assert len(processes.rung) == 2


# ---- locks -----------------------------------------------------------------------------------------------------------


async def test_a_change_that_holders_relied_on_takes_every_lock(broker: Broker, queue: Queue) -> None:
    await send(broker, queue, [Letter(Envelope(""))] * 3)
    held = await receive(broker, queue, Wish(most=2))
    processes, records = Processes(), Records(broker.locks)
    told = replace(broker, bells=processes, locks=cast("Locks", records))
    described = await change_queue(told, queue, describe)
    assert records.dropped == []
    await change_queue(told, described, lambda settings: replace(settings, lock_duration=MINUTE))
    assert sorted(records.dropped, key=str) == [(token_of(message), HIGHEST_GENERATION) for message in held]
    assert processes.rung == [(queue.id, 2)]
    tally: Any = broker.tally
    assert tally["locks_taken"] == 2
    assert len(await receive(broker, queue, Wish(most=10))) == 3


async def test_a_pass_takes_the_locks_that_a_change_has_left_and_then_forgets_the_change(
    broker: Broker, queue: Queue
) -> None:
    await send(broker, queue, [Letter(Envelope(""))] * 2)
    await receive(broker, queue, Wish(most=2))
    assert await broker.store.queues.change(queue, replace(queue.settings, lock_duration=MINUTE))
    assert [await take_locks(broker) for _ in range(2)] == [2, 0]
    assert await broker.store.queues.takings(10) == []


# ---- what is shown ---------------------------------------------------------------------------------------------------


async def test_queues_are_shown_with_their_counts(broker: Broker, queue: Queue) -> None:
    other, _ = await put_queue(broker, "repairs", SETTINGS)
    await send(broker, other, [Letter(Envelope(""))] * 2)
    shown = await list_queues(broker, "", 10)
    assert [(one.queue, one.counts.available) for one in shown] == [(queue, 0), (other, 2)]
    assert await show_queue(broker, "repairs") == shown[1]
    assert await list_queues(broker, "orders", 10) == shown[1:]
