"""A queue changes only under the precondition of the request, and every process is notified."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from app.broker.administration.queues import change_queue, delete_queue, get_queue, list_queues, put_queue, reload_queue
from app.broker.ports.lock_store import LockStore
from app.broker.ports.queues import QueueStore
from app.broker.ports.store import Store
from app.broker.precondition import MAX_TRIES, Precondition
from app.broker.queue_cache import QueueCache
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.revoke_locks import revoke_locks
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Envelope
from app.domain.queue import REVOCATION_PERIOD, HeldLocks, Queue, QueueSettings, QueueStatus
from app.domain.refusals import PreconditionFailed, QueueNotFound, StoreUnavailable
from app.domain.sending import NewMessage
from app.domain.settlement import MAX_GENERATION, token_of
from tests.broker.recorders import RecordingLockStore, RecordingNotifier
from tests.brokers import ChangedStore, OpenBroker, dead_letter_all
from tests.virtual_clock import VirtualClock

SETTINGS = QueueSettings(description="as it was")
CHANGED = QueueSettings(description="as it is")


@pytest.fixture
async def queue(broker: OpenBroker) -> Queue:
    queue, made = await put_queue(broker.administration, "orders", SETTINGS)
    assert made
    return queue


class ContendedQueueStore:
    """A queue store in which another process changes the queue just before this one."""

    def __init__(self, queues: QueueStore, interrupt: Callable[[], Awaitable[object]], times: int) -> None:
        self._queues = queues
        self._event = interrupt
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queues, name)

    async def change(self, queue: Queue, settings: QueueSettings, locks: HeldLocks) -> Queue | None:
        await self._interrupt()
        return await self._queues.change(queue, settings, locks)

    async def delete(self, queue: Queue) -> bool:
        await self._interrupt()
        return await self._queues.delete(queue)

    async def _interrupt(self) -> None:
        if self._left:
            self._left -= 1
            await self._event()


class ReplacedQueueStore:
    """A queue store in which another process makes the queue before each creation, and deletes it before each change."""

    def __init__(self, queues: QueueStore) -> None:
        self._queues = queues

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queues, name)

    async def create(self, name: str, settings: QueueSettings, max_queues: int) -> tuple[Queue, bool]:
        await self._queues.create(name, SETTINGS, max_queues)
        return await self._queues.create(name, settings, max_queues)

    async def change(self, queue: Queue, settings: QueueSettings, _: HeldLocks) -> Queue | None:
        assert await self._queues.delete(queue)
        return await self._queues.change(queue, settings)


class StoreWithQueues:
    """A store with a replaced queue store."""

    def __init__(self, store: Store, queues: Any) -> None:
        self._store = store
        self.queues = queues

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def contended_broker(
    broker: OpenBroker, times: int, interrupt: Callable[[], Awaitable[object]] | None = None
) -> OpenBroker:
    """Return a broker in which another event (default: a change) precedes each of the first `times` changes."""

    async def another_change() -> None:
        queue = await reload_queue(broker.administration, "orders")
        seconds = queue.settings.archive_retention + 1
        assert await broker.store.queues.change(queue, replace(queue.settings, archive_retention=seconds))

    queues = ContendedQueueStore(broker.store.queues, interrupt or another_change, times)
    return replace(broker, store=cast("Store", StoreWithQueues(broker.store, queues)))


def settings_with_description(settings: QueueSettings) -> QueueSettings:
    return replace(settings, description="described")


# ---- conditions ------------------------------------------------------------------------------------------------------


async def test_put_creates_a_queue_and_then_changes_it(broker: OpenBroker, queue: Queue) -> None:
    changed, made = await put_queue(broker.administration, queue.name, CHANGED)
    assert (changed.id, changed.settings, made) == (queue.id, CHANGED, False)
    assert await put_queue(broker.administration, queue.name, CHANGED) == (changed, False), (
        "equal settings change nothing"
    )


async def test_a_change_with_a_stale_etag_is_refused(broker: OpenBroker, queue: Queue) -> None:
    condition = Precondition(if_match=[queue.etag])
    changed, made = await put_queue(broker.administration, queue.name, CHANGED, condition)
    assert (changed.settings, made) == (CHANGED, False)
    with pytest.raises(PreconditionFailed, match="was changed or made again"):
        await put_queue(broker.administration, queue.name, SETTINGS, condition)
    with pytest.raises(PreconditionFailed):
        await change_queue(broker.administration, changed, settings_with_description, condition)
    with pytest.raises(PreconditionFailed):
        await delete_queue(broker.administration, changed, condition)
    assert await reload_queue(broker.administration, queue.name) == changed
    with pytest.raises(PreconditionFailed, match="no queue named repairs"):
        await put_queue(broker.administration, "repairs", SETTINGS, condition)


async def test_a_change_of_an_etag_in_if_none_match_is_refused(broker: OpenBroker, queue: Queue) -> None:
    with pytest.raises(PreconditionFailed, match="There is a queue named orders already"):
        await put_queue(broker.administration, queue.name, CHANGED, Precondition(if_none_match=[queue.etag]))
    changed, _ = await put_queue(broker.administration, queue.name, CHANGED, Precondition(if_none_match=["another"]))
    assert changed.settings == CHANGED


async def test_a_deleted_queue_is_not_found(broker: OpenBroker, queue: Queue) -> None:
    await delete_queue(broker.administration, queue)
    for operation in (
        reload_queue(broker.administration, queue.name),
        get_queue(broker.administration, queue.name),
        change_queue(broker.administration, queue, settings_with_description),
        delete_queue(broker.administration, queue),
    ):
        with pytest.raises(QueueNotFound):
            await operation


# ---- concurrent changes ----------------------------------------------------------------------------------------------


async def test_a_change_keeps_concurrent_changes(broker: OpenBroker, queue: Queue) -> None:
    changed = await change_queue(contended_broker(broker, 2).administration, queue, settings_with_description)
    assert changed.settings == settings_with_description(
        replace(queue.settings, archive_retention=queue.settings.archive_retention + 2)
    )


async def test_a_delete_succeeds_after_concurrent_changes(broker: OpenBroker, queue: Queue) -> None:
    await delete_queue(contended_broker(broker, 2).administration, queue)
    assert await broker.store.queues.by_name(queue.name) is None


async def test_a_precondition_is_checked_again_after_concurrent_changes(broker: OpenBroker, queue: Queue) -> None:
    condition = Precondition(if_match=[queue.etag])
    with pytest.raises(PreconditionFailed):
        await change_queue(contended_broker(broker, 1).administration, queue, settings_with_description, condition)
    with pytest.raises(PreconditionFailed):
        await delete_queue(
            contended_broker(broker, 1).administration, await reload_queue(broker.administration, queue.name), condition
        )


async def test_a_change_gives_up_after_too_many_concurrent_changes(broker: OpenBroker, queue: Queue) -> None:
    busy = contended_broker(broker, MAX_TRIES)
    with pytest.raises(StoreUnavailable, match="changed nothing"):
        await change_queue(busy.administration, queue, settings_with_description)
    with pytest.raises(StoreUnavailable, match="changed nothing"):
        await delete_queue(
            contended_broker(broker, MAX_TRIES).administration, await reload_queue(broker.administration, queue.name)
        )
    assert (await reload_queue(broker.administration, queue.name)).settings.description == SETTINGS.description


async def test_a_queue_that_is_deleted_during_a_put_is_created_again(broker: OpenBroker, queue: Queue) -> None:
    deleting = contended_broker(broker, 1, lambda: broker.store.queues.delete(queue))
    made_again, made = await put_queue(deleting.administration, queue.name, CHANGED)
    assert (made_again.settings, made) == (CHANGED, True)
    assert made_again.id != queue.id


async def test_a_put_gives_up_if_the_queue_is_deleted_each_time(broker: OpenBroker, queue: Queue) -> None:
    queues = cast("QueueStore", ReplacedQueueStore(broker.store.queues))
    store = ChangedStore(broker.store, queues=queues)
    queue_cache = QueueCache(queues, VirtualClock(), auto_create=False)
    busy = replace(broker.administration, store=store, queue_cache=queue_cache)
    with pytest.raises(StoreUnavailable, match="changed nothing"):
        await put_queue(busy, queue.name, CHANGED)


# ---- notifications ---------------------------------------------------------------------------------------------------


async def test_changes_and_deletes_notify_other_processes(broker: OpenBroker, queue: Queue) -> None:
    processes = RecordingNotifier()
    notifying = replace(broker, notifier=processes)
    assert await broker.queue_cache.by_name(queue.name) == queue
    changed = await change_queue(notifying.administration, queue, settings_with_description)
    assert await broker.queue_cache.by_name(queue.name) == changed
    assert processes.changes_of_queues == 1
    await change_queue(notifying.administration, changed, settings_with_description)
    assert processes.changes_of_queues == 1, "nothing has changed"
    await delete_queue(notifying.administration, changed)
    assert processes.changes_of_queues == 2
    with pytest.raises(QueueNotFound):
        await broker.queue_cache.by_name(queue.name)


@pytest.mark.parametrize("closed", [QueueStatus.RECEIVE_DISABLED, QueueStatus.DISABLED])
async def test_enabling_receives_wakes_a_receiver_for_each_message(
    broker: OpenBroker, queue: Queue, closed: QueueStatus
) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))] * 3)
    await dead_letter_all(broker.store, queue)
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))] * 2)
    processes = RecordingNotifier()
    notifying = replace(broker, notifier=processes)
    disabled = await change_queue(notifying.administration, queue, lambda settings: replace(settings, status=closed))
    described = await change_queue(notifying.administration, disabled, settings_with_description)
    assert processes.notified == []
    enabled = await change_queue(
        notifying.administration, described, lambda settings: replace(settings, status=QueueStatus.ACTIVE)
    )
    assert processes.notified == [(queue.id, 2), (-queue.id, 3)]
    await change_queue(notifying.administration, enabled, lambda settings: replace(settings, description="open"))
    assert len(processes.notified) == 2


# ---- locks -----------------------------------------------------------------------------------------------------------


async def test_a_change_of_the_lock_duration_revokes_every_lock(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))] * 3)
    locked = (await receive(broker.receiving, queue, ReceiveRequest(max_messages=2))).result
    processes, records = RecordingNotifier(), RecordingLockStore(broker.lock_store)
    notifying = replace(broker, notifier=processes, lock_store=cast("LockStore", records))
    described = await change_queue(notifying.administration, queue, settings_with_description)
    assert records.dropped == []
    await change_queue(notifying.administration, described, lambda settings: replace(settings, lock_duration=MINUTE))
    assert sorted(records.dropped, key=str) == [(token_of(message), MAX_GENERATION) for message in locked]
    assert processes.notified == [(queue.id, 2)]
    counters: Any = broker.counters
    assert counters["locks_taken"] == 2
    assert len((await receive(broker.receiving, queue, ReceiveRequest(max_messages=10))).result) == 3


async def test_a_background_pass_completes_a_revocation(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))] * 2)
    await receive(broker.receiving, queue, ReceiveRequest(max_messages=2))
    assert await broker.store.queues.change(queue, replace(queue.settings, lock_duration=MINUTE))
    assert [await revoke_locks(broker.settling) for _ in range(2)] == [2, 0]
    assert await broker.store.queues.revocations(10) == []


async def test_a_lock_that_appears_after_the_change_it_preceded_is_revoked(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    """Its receive began before the change and commits after it."""
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))] * 2)
    assert await change_queue(broker.administration, queue, lambda settings: replace(settings, lock_duration=HOUR))
    await clock.advance(-1)
    await receive(broker.receiving, queue, ReceiveRequest())
    await clock.advance(2)
    await receive(broker.receiving, queue, ReceiveRequest())
    assert [await revoke_locks(broker.settling) for _ in range(2)] == [1, 0]
    await clock.advance(REVOCATION_PERIOD / SECOND)
    assert await revoke_locks(broker.settling) == 0
    assert await broker.store.queues.revocations(10) == []


async def test_a_change_that_keeps_locks_keeps_them_after_concurrent_changes(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))])
    await receive(broker.receiving, queue, ReceiveRequest())

    async def interrupt() -> None:
        current = await reload_queue(broker.administration, queue.name)
        await change_queue(broker.administration, current, settings_with_description)

    contended: Any = ChangedStore(broker.store, queues=ContendedQueueStore(broker.store.queues, interrupt, 1))
    changing = replace(broker, store=contended)
    changed = await change_queue(
        changing.administration, queue, lambda settings: replace(settings, lock_duration=HOUR), locks=HeldLocks.KEEP
    )
    assert (changed.settings.lock_duration, changed.settings.description) == (HOUR, "described")
    assert await revoke_locks(broker.settling) == 0


# ---- listing ---------------------------------------------------------------------------------------------------------


async def test_queues_are_listed_with_their_counts(broker: OpenBroker, queue: Queue) -> None:
    other, _ = await put_queue(broker.administration, "repairs", SETTINGS)
    await send(broker.sending, other.name, [NewMessage(Envelope(""))] * 2)
    listed = await list_queues(broker.store.queues, "", 10)
    assert [(item.queue, item.counts.available) for item in listed] == [(queue, 0), (other, 2)]
    assert await get_queue(broker.administration, "repairs") == listed[1]
    assert await list_queues(broker.store.queues, "orders", 10) == listed[1:]
