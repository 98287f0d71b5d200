"""Change lock: set the exact end of a lock for its holder, earlier or later than before.

Renewals promise an end in two places: SQL bounds it, and a record in the lock store may extend it inside that bound. So SQL
moves its bound back only if no record can exist: the lock was never renewed (generation 0), or processes share no lock
store. The generation stays, because `locked_until` in SQL remains the promise itself.

A lock that was renewed gets its new end from a record. Its generation grows in SQL first, so that no record of an earlier
renewal replaces this one. SQL keeps its bound: if the lock store loses the record, the message comes back later, never
earlier. The new end counts from the lock store's clock at the moment when the record is written. So a change that is
delayed lets the lock end later. It never breaks the promise of a renewal in between that was not longer.

If the lock store does not answer, only an end in SQL can be promised. If SQL's bound is later, the change is refused.

Crash windows: before SQL nothing has changed. Between SQL and the record the lock lasts until its bound. After the
record the holder may not know of its new end.
"""

from app.broker.ports.lock_store import NOT_WRITTEN, LockRecord, NotRenewed, QueueVersion
from app.broker.ports.settling import Extended, Extension
from app.broker.settling.ports import SettlingPorts
from app.broker.settling.renew import CLOCK_MARGIN, RECORD_WINDOW, RenewedLock, ended_delivery
from app.broker.settling.settle import MAX_TRIES, pause_before_retry, release_lost
from app.domain.instant import Duration, Instant
from app.domain.queue import Queue, Redelivery, lead_time
from app.domain.refusals import InvalidRequest, LockStoreUnavailable, MessageBusy
from app.domain.settlement import NO_EXPIRED_GENERATION, LockedMessage, LockToken
from app.domain.transaction_refusals import MessageInTransaction

NO_ANSWER = NotRenewed(asked_at=None, expired_generation=NO_EXPIRED_GENERATION)


async def change_lock(
    ports: SettlingPorts, queue: Queue, token: LockToken, duration: Duration | None = None
) -> RenewedLock:
    """Let a lock end at now + `duration` (default: that of the queue), if the token still holds it. The token stays valid.

    Refuses as `renew` does, and with `InvalidRequest` if locks of the queue do not end by time, `MessageInTransaction`
    while a settlement of the message waits for a commit, or `LockStoreUnavailable`.
    """
    if queue.settings.redelivery is Redelivery.ON_REQUEST:
        raise InvalidRequest("The locks of this queue do not end by time, so no end can be set.")
    duration = duration or queue.settings.lock_duration
    for try_number in range(MAX_TRIES):
        if try_number:
            await pause_before_retry(ports.clock, try_number - 1)
        (locked,) = await ports.store.locked_messages([token])
        if locked is None or locked.queue_id != queue.id:
            raise await ended_delivery(ports, queue, token)
        if locked.is_live and locked.is_in_transaction:
            raise MessageInTransaction
        may_have_record = locked.lock_generation > 0 and ports.lock_store.keeps_records
        answer = await ports.lock_store.ask(token) if may_have_record else NO_ANSWER
        if may_have_record:
            changed = await _set_recorded_end(ports, queue, locked, duration, answer)
        else:
            changed = await _set_end(ports, queue, locked, duration)
        if changed is not None:
            return changed
        if lost := await release_lost(ports, locked, answer.expired_generation):
            raise lost
    raise MessageBusy


async def _set_end(ports: SettlingPorts, queue: Queue, locked: LockedMessage, duration: Duration) -> RenewedLock | None:
    """Set the end of a lock that has no record. Return None if it has ended, or was renewed since it was read."""
    exact = Extension(
        locked.token,
        queue.id,
        duration,
        NO_EXPIRED_GENERATION,
        keeps_history=queue.settings.history,
        max_generation=locked.lock_generation,
        is_exact=True,
    )
    (changed,) = await ports.store.extend([exact])
    return None if changed is None else RenewedLock(changed.locked_until, duration, changed.read_started_at)


async def _set_recorded_end(
    ports: SettlingPorts, queue: Queue, locked: LockedMessage, duration: Duration, answer: NotRenewed
) -> RenewedLock | None:
    """Set the end of a lock that may have a record. Return None if it has ended, or another request changed it meanwhile."""
    extension = Extension(
        locked.token,
        queue.id,
        duration if answer.asked_at is None else _lead_time(duration),
        answer.expired_generation,
        keeps_history=queue.settings.history,
        max_generation=locked.lock_generation,
    )
    (extended,) = await ports.store.extend([extension])
    if extended is None:
        return None
    if answer.asked_at is None:
        if extended.locked_until > extended.read_at + duration:
            raise LockStoreUnavailable
        return RenewedLock(extended.locked_until, duration, extended.read_started_at)
    return await _record_end(ports, queue, locked.token, duration, answer.asked_at, extended)


def _lead_time(duration: Duration) -> Duration:
    """Return how far ahead SQL bounds the lock: beyond its new end, even if its record is written at the end of the window."""
    return max(lead_time(duration, shared_locks=True), duration + RECORD_WINDOW + CLOCK_MARGIN)


async def _record_end(
    ports: SettlingPorts, queue: Queue, token: LockToken, duration: Duration, asked_at: Instant, extended: Extended
) -> RenewedLock | None:
    """Write the record that ends the lock. Return None if a later renewal has written its own, or the time has passed."""
    bound = asked_at + (extended.locked_until - extended.read_at) - CLOCK_MARGIN
    late_after = asked_at + RECORD_WINDOW
    version = QueueVersion(queue.id, queue.lock_version)
    started_at = ports.clock.monotonic()
    record = LockRecord(extended.generation, duration, bound, late_after, version)
    ends_at = await ports.lock_store.write_record(token, record)
    if ends_at is None:
        raise LockStoreUnavailable
    is_in_time = ends_at < late_after + duration
    return RenewedLock(ends_at, duration, started_at) if ends_at != NOT_WRITTEN and is_in_time else None
