"""Queues: create, change and delete them, under the precondition of the request.

A change of a setting that lock holders rely on (see `revokes_locks`) revokes the locks. Their messages return
uncounted, and the holders get `lock-lost` with the cause `entity_changed` (S3.33). A request can keep the locks: they stay
as they are, and their renewals and settlements follow the new settings.

Crash window: the process may die after the commit of the change. The queue records the revocation, and the sweeper of any
process revokes the rest.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from app.broker.administration.ports import AdministrationPorts
from app.broker.administration.range_pages import page_of_ranges
from app.broker.ports.queues import QueueStore
from app.broker.precondition import MAX_TRIES, UNCONDITIONAL, Precondition
from app.broker.settling.revoke_locks import revoke_locks
from app.domain.name_ranges import NameRange
from app.domain.queue import (
    HeldLocks,
    Queue,
    QueueCounts,
    QueueSettings,
    check_can_keep_locks,
    check_known,
    is_receive_enabled,
    revokes_locks,
)
from app.domain.refusals import QueueNotFound, StoreUnavailable

TOO_MANY_CHANGES_DETAIL = "Too many concurrent changes to this queue; this request changed nothing."

SettingsChange: TypeAlias = Callable[[QueueSettings], QueueSettings]


@dataclass(frozen=True, slots=True)
class QueueWithCounts:
    """A queue with its message counts at the time of the read."""

    queue: Queue
    counts: QueueCounts


async def put_queue(
    ports: AdministrationPorts,
    name: str,
    settings: QueueSettings,
    precondition: Precondition = UNCONDITIONAL,
    locks: HeldLocks = HeldLocks.REVOKE,
) -> tuple[Queue, bool]:
    """Create the queue or replace its settings; return it and whether it was created.

    Equal settings change nothing. Refuses as `change_queue` does, and with `StoreUnavailable` if others delete the queue
    each time.
    """
    for _ in range(MAX_TRIES):
        if precondition.if_match is None:
            queue, created = await ports.queue_cache.create(name, settings)
            if created:
                return queue, True
        else:
            try:
                queue = await reload_queue(ports, name)
            except QueueNotFound:
                precondition.check_absent("queue", name)
                raise
        with suppress(QueueNotFound):
            return await change_queue(ports, queue, lambda _: settings, precondition, locks), False
        # The queue was deleted meanwhile: create it, or refuse because of the precondition.
    raise StoreUnavailable(TOO_MANY_CHANGES_DETAIL)


async def change_queue(
    ports: AdministrationPorts,
    queue: Queue,
    change: SettingsChange,
    precondition: Precondition = UNCONDITIONAL,
    locks: HeldLocks = HeldLocks.REVOKE,
) -> Queue:
    """Replace the queue's settings with the result of `change`; return the changed queue.

    `locks` says whether the locks that receivers hold are kept. After a concurrent change, `change` is applied again to the
    settings that it left. Refuses with `PreconditionFailed` if the precondition does not hold, or no longer holds, with
    `QueueNotFound` if the queue was deleted meanwhile, and as `check_can_keep_locks` does if locks are kept.
    """
    for _ in range(MAX_TRIES):
        precondition.check("queue", queue.name, queue.etag)
        settings = change(queue.settings)
        if settings == queue.settings:
            await ports.store.queues.await_replication()
            return queue
        if locks is HeldLocks.KEEP:
            check_can_keep_locks(queue.settings, settings)
        changed = await ports.store.queues.change(queue, settings, locks)
        ports.queue_cache.forget(queue)
        if changed is not None:
            ports.notifier.queues_changed()
            if is_receive_enabled(settings) and not is_receive_enabled(queue.settings):
                await _notify_enabled(ports, changed)
            if revokes_locks(queue.settings, settings, locks):
                while await revoke_locks(ports.settling):
                    pass
            return changed
        queue = await reload_queue(ports, queue.name)
    raise StoreUnavailable(TOO_MANY_CHANGES_DETAIL)


async def delete_queue(ports: AdministrationPorts, queue: Queue, precondition: Precondition = UNCONDITIONAL) -> None:
    """Delete the queue. Its messages move to the archive as purged. Refuses as `change_queue` does, and with
    `QueueIsTarget` the target of a subscription.

    Crash window: a background loop of any process moves the messages of a deleted queue.
    """
    for _ in range(MAX_TRIES):
        precondition.check("queue", queue.name, queue.etag)
        deleted = await ports.store.queues.delete(queue)
        ports.queue_cache.forget(queue)
        if deleted:
            ports.notifier.queues_changed()
            return
        queue = await reload_queue(ports, queue.name)
    raise StoreUnavailable(TOO_MANY_CHANGES_DETAIL)


async def check_deletable(ports: AdministrationPorts, queue: Queue, precondition: Precondition) -> None:
    """Refuse as `delete_queue` does, and delete nothing."""
    precondition.check("queue", queue.name, queue.etag)
    await ports.store.queues.check_deletable(queue)


async def get_queue(ports: AdministrationPorts, name: str) -> QueueWithCounts:
    """Read the queue and its counts from the store, even if only a newer server can serve it.

    Refuses with `QueueNotFound`.
    """
    queue = await _read_queue(ports, name)
    return QueueWithCounts(queue, (await ports.store.queues.counts([queue.id]))[queue.id])


async def list_queues(queues: QueueStore, after: str, limit: int) -> list[QueueWithCounts]:
    """Return up to `limit` queues with names above `after`, by name, with their counts."""
    return await _with_counts(queues, await queues.page(after, limit))


async def list_own_queues(
    queues: QueueStore, ranges: Sequence[NameRange], after: str, limit: int
) -> tuple[list[QueueWithCounts], str | None]:
    """Return up to `limit` queues of the ranges above `after`, by name, with their counts, and the next cursor."""
    listed, more = await page_of_ranges(queues.page, ranges, after, limit)
    return await _with_counts(queues, listed), more


async def _with_counts(queues: QueueStore, listed: Sequence[Queue]) -> list[QueueWithCounts]:
    counts = await queues.counts([queue.id for queue in listed])
    return [QueueWithCounts(queue, counts[queue.id]) for queue in listed]


async def reload_queue(ports: AdministrationPorts, name: str) -> Queue:
    """Read the queue from the store instead of the cache, before a change.

    Refuses with `QueueNotFound`, and with `NewerQueue` if only a newer server can serve it.
    """
    try:
        queue = await _read_queue(ports, name)
    except QueueNotFound:
        await ports.store.queues.await_replication()
        raise
    check_known(queue)
    return queue


async def _read_queue(ports: AdministrationPorts, name: str) -> Queue:
    queue = await ports.store.queues.by_name(name)
    if queue is None:
        raise ports.queue_cache.not_found(name)
    return queue


async def _notify_enabled(ports: AdministrationPorts, queue: Queue) -> None:
    """Wake receivers that have waited since before the queue was disabled for receives."""
    counts = (await ports.store.queues.counts([queue.id]))[queue.id]
    ports.receivers.notify_enabled(queue.id, counts.available, counts.dead_lettered)
