"""Renew: extend the lock of a holder.

With a shared lock store most renewals complete there, within a bound that SQL has granted in advance; only about one in
four writes SQL. `asked_at` is the lock store's clock, read *before* the SQL write. It sets the bound and the promised
`locked_until`. The expiry of the record is set from the lock store's clock, read *after* the SQL write. So a process
that pauses between the two can neither promise more than SQL holds nor expire a promise that is still live. A record is
written without a bound if it is written later than `RECORD_WINDOW` after `asked_at`: the row may have been freed by
then, and no write may revive a dead token.

A record holds the queue version for which it was written, and counts for no other. So a record that survives a change
or purge that revoked its lock extends nothing: the renewal goes to SQL, where the token is gone. A process that misses
both the deletion of the record and the notification uses its cached version, for at most `CACHE_SECONDS` of the queue
cache. During that time it can still grant a renewal of a revoked lock, but no settlement succeeds with it. SQL never
extends a lock that a change of its queue is about to revoke.

Crash windows: before the SQL write, nothing has changed. After it, the lock lasts until its bound and no record
contradicts it; the message comes back later, never earlier.
"""

from dataclasses import dataclass

from app.broker.ports.lock_store import LockRecord, LockStore, NotRenewed, QueueVersion, Renewed
from app.broker.ports.settling import Extended, Extension
from app.broker.settling.ports import SettlingPorts
from app.broker.settling.settle import MAX_TRIES, pause_before_retry, release_lost, resolve_late
from app.domain.instant import SECOND, Duration, Instant, remaining
from app.domain.queue import Queue, Redelivery, lead_time
from app.domain.refusals import LockLost, MessageBusy, Refusal
from app.domain.settlement import NO_EXPIRED_GENERATION, LockToken, Settled

CLOCK_MARGIN: Duration = 2 * SECOND
"""How much earlier than in SQL the lock store's bound ends: more than the two clocks drift in one lead time."""

RECORD_WINDOW: Duration = SECOND
"""How long after `asked_at` a record may be written with a bound: no longer than the shortest lock. So no record of an
earlier renewal extends a lock after the end to which it was changed."""


@dataclass(frozen=True, slots=True)
class RenewedLock:
    """A renewed lock that its holder may rely on until `locked_until`.

    `duration` counts from `measured_from` on the monotonic clock, which was read before the clock of `locked_until`.
    """

    locked_until: Instant
    duration: Duration
    measured_from: float

    def remaining(self, now: float) -> Duration:
        """Return how long the lock certainly lasts from `now` on the monotonic clock."""
        return remaining(self.duration, self.measured_from, now)


@dataclass(frozen=True, slots=True)
class RenewalRequest:
    """A request to extend a lock, for one version of its queue."""

    token: LockToken
    queue_version: QueueVersion
    duration: Duration


async def renew(ports: SettlingPorts, queue: Queue, token: LockToken, duration: Duration | None = None) -> RenewedLock:
    """Extend a lock to now + `duration` (default: that of the queue), only for its holder (S3.15).

    Refuses with `LockLost`, `AlreadySettled`, `MessageNotFound`, or `MessageBusy` while another request holds the row.
    """
    if queue.settings.redelivery is Redelivery.ON_REQUEST:
        return await _held_lock(ports, queue, token)
    duration = duration or queue.settings.lock_duration
    renewal = RenewalRequest(token, QueueVersion(queue.id, queue.lock_version), duration)
    for try_number in range(MAX_TRIES):
        if try_number:
            await pause_before_retry(ports.clock, try_number - 1)
        started_at = ports.clock.monotonic()
        answer = await ports.lock_store.renew(token, duration, renewal.queue_version)
        if isinstance(answer, Renewed):
            ports.counters.count("renewals_without_sql")
            return RenewedLock(answer.locked_until, answer.remaining, started_at)
        (locked,) = await ports.store.locked_messages([token])
        if locked is None or locked.queue_id != queue.id:
            raise await ended_delivery(ports, queue, token)
        extension = lead_time(duration, shared_locks=ports.lock_store.is_shared and answer.asked_at is not None)
        lengthening = Extension(token, queue.id, extension, answer.expired_generation, queue.settings.history)
        (extended,) = await ports.store.extend([lengthening])
        if extended is not None:
            until = await _record_renewal(ports.lock_store, renewal, answer, extended, extension)
            return RenewedLock(until, duration, extended.read_started_at if answer.asked_at is None else started_at)
        if lost := await release_lost(ports, locked, answer.expired_generation):
            raise lost
    raise MessageBusy


async def _held_lock(ports: SettlingPorts, queue: Queue, token: LockToken) -> RenewedLock:
    """Return a lock that does not end by time, unchanged. Neither SQL nor the lock store needs to extend it."""
    started_at = ports.clock.monotonic()
    (locked,) = await ports.store.locked_messages([token])
    if locked is None or locked.queue_id != queue.id:
        raise await ended_delivery(ports, queue, token)
    if lost := await release_lost(ports, locked, NO_EXPIRED_GENERATION):
        raise lost
    return RenewedLock(locked.locked_until, max(0, locked.locked_until - locked.read_at), started_at)


async def _record_renewal(
    lock_store: LockStore, renewal: RenewalRequest, answer: NotRenewed, extended: Extended, extension: Duration
) -> Instant:
    """Write the renewal to the lock store; return the `locked_until` that the holder is promised.

    The expiry of the record is not before the end of any earlier promise: SQL's previous `locked_until` was the bound
    of every promise by the claim or by a longer renewal. The SQL write reads it, and SQL writes follow one another. So
    of two concurrent renewals the later one includes the earlier, even if the earlier one's record is written later or
    never.
    """
    duration = renewal.duration
    if answer.asked_at is None:
        return extended.read_at + duration
    promised_until = answer.asked_at + duration
    record_duration = max(duration, extended.previous_locked_until - extended.read_at)
    bound = answer.asked_at + extension - CLOCK_MARGIN
    late_after = answer.asked_at + min(duration, RECORD_WINDOW)
    record = LockRecord(extended.generation, record_duration, bound, late_after, renewal.queue_version)
    await lock_store.write_record(renewal.token, record)
    return promised_until


async def ended_delivery(ports: SettlingPorts, queue: Queue, token: LockToken) -> Refusal:
    """Return why a token holds no message of this queue."""
    answer = await resolve_late(ports, queue, token, requested=None)
    return LockLost() if isinstance(answer, Settled) else answer
