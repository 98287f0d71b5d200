"""Renew: the holder needs longer.

With a shared lock store most renewals end there, inside a bound that SQL has granted ahead; SQL
itself is written about once in four. `asked_at`, the lock store's clock read *before* SQL is
written, sets the bound and the promise; the deadline that may later serve as evidence is set from
its clock read *after*. So a process paused in between can neither promise beyond what SQL holds
nor leave evidence against a promise that lives. A record that comes after its own promise has ended
is not written at all: the row may have been freed by then, and nothing may revive a dead token.

A record says for which edition of the queue it was written, and counts for no other. So a record
that outlives a change or a purge that took its lock prolongs nothing: the renewal goes to SQL, where
the token is gone. A process that hears of the change neither by the drop of the record nor by a notice goes by the
version that it remembers, for `CACHE_SECONDS` of the catalogue: for so long a renewal of a lock that was taken can still
be granted, though nothing can be settled with it. SQL in turn prolongs no lock that a change of its queue is about to take.

Crash windows: dead before the SQL write, nothing changed. Dead after it, the lock lasts until its
bound and no record speaks against it; the message comes back later, never earlier.
"""

from dataclasses import dataclass

from app.broker.broker import Broker
from app.broker.ports import Extended, Extension, LockRecord, NotRenewed, QueueVersion, Renewed
from app.broker.settle import MAX_TRIES, pause_before_retry, release_lost, resolve_late
from app.domain.instant import SECOND, Duration, Instant, remaining
from app.domain.queue import Queue, lead_time
from app.domain.refusals import LockLost, MessageBusy, Refusal
from app.domain.settlement import LockToken, Settled

CLOCK_MARGIN: Duration = 2 * SECOND
"""How much earlier than SQL the lock store's bound ends: more than the two clocks drift in one lead."""


@dataclass(frozen=True, slots=True)
class RenewedLock:
    """What a holder may rely on: the lock is its own until then.

    `duration` is counted from a moment of the monotonic clock before the clock was read that `locked_until` comes from.
    """

    locked_until: Instant
    duration: Duration
    measured_from: float

    def remaining(self, now: float) -> Duration:
        """What is certainly left of the lock at `now` of the monotonic clock."""
        return remaining(self.duration, self.measured_from, now)


@dataclass(frozen=True, slots=True)
class RenewalRequest:
    """What a holder asks for, of which edition of its queue."""

    token: LockToken
    queue_version: QueueVersion
    duration: Duration


async def renew(broker: Broker, queue: Queue, token: LockToken, duration: Duration | None = None) -> RenewedLock:
    """Prolong a lock to now + `duration` (the queue's own when absent), only for its holder (S3.15).

    Refuses with `LockLost`, `AlreadySettled`, `MessageNotFound`, or `MessageBusy` while another request holds the row.
    """
    duration = duration or queue.settings.lock_duration
    renewal = RenewalRequest(token, QueueVersion(queue.id, queue.lock_version), duration)
    for try_number in range(MAX_TRIES):
        if try_number:
            await pause_before_retry(broker, try_number - 1)
        asked_at = broker.clock.monotonic()
        answer = await broker.lock_store.renew(token, duration, renewal.queue_version)
        if isinstance(answer, Renewed):
            broker.counters.count("renewals_without_sql")
            return RenewedLock(answer.locked_until, answer.remaining, asked_at)
        (held,) = await broker.store.locked_messages([token])
        if held is None or held.queue_id != queue.id:
            raise await _refusal(broker, queue, token)
        extension = lead_time(duration, shared_locks=broker.lock_store.is_shared and answer.asked_at is not None)
        (extended,) = await broker.store.extend([Extension(token, queue.id, extension, answer.expired_generation)])
        if extended is not None:
            until = await _record_renewal(broker, renewal, answer, extended, extension)
            return RenewedLock(until, duration, extended.read_started_at if answer.asked_at is None else asked_at)
        if lost := await release_lost(broker, held, answer.expired_generation):
            raise lost
    raise MessageBusy


async def _record_renewal(
    broker: Broker, renewal: RenewalRequest, answer: NotRenewed, extended: Extended, extension: Duration
) -> Instant:
    """What the holder is promised, and what the lock store is told of it.

    The deadline that may serve as evidence lies beyond every earlier promise too: whatever was
    promised before, by the claim or a longer renewal, SQL's `locked_until` was its bound. That one is
    read where this renewal follows the others, so of two at once the later one knows of the earlier,
    even if the earlier one's record comes after its own or never.
    """
    duration = renewal.duration
    if answer.asked_at is None:
        return extended.read_at + duration
    promised_until = answer.asked_at + duration
    record_duration = max(duration, extended.previous_locked_until - extended.read_at)
    bound = answer.asked_at + extension - CLOCK_MARGIN
    record = LockRecord(extended.generation, record_duration, bound, promised_until, renewal.queue_version)
    await broker.lock_store.write_record(renewal.token, record)
    return promised_until


async def _refusal(broker: Broker, queue: Queue, token: LockToken) -> Refusal:
    answer = await resolve_late(broker, queue, token, requested=None)
    return LockLost() if isinstance(answer, Settled) else answer
