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
version that it remembers, for `KEEP_SECONDS` of the catalogue: for so long a renewal of a lock that was taken can still
be granted, though nothing can be settled with it. SQL in turn prolongs no lock that a change of its queue is about to take.

Crash windows: dead before the SQL write, nothing changed. Dead after it, the lock lasts until its
bound and no record speaks against it; the message comes back later, never earlier.
"""

from dataclasses import dataclass

from app.broker.broker import Broker
from app.broker.ports import Edition, Extended, Extension, LockRecord, NotRenewed, Renewed
from app.broker.settling import MOST_LOOKS, let_others_end, lose, what_happened
from app.domain.instant import SECOND, Duration, Instant, remaining
from app.domain.queue import Queue, lead
from app.domain.refusals import LockLost, MessageBusy, Refusal
from app.domain.settlement import LockToken, Settled

MARGIN: Duration = 2 * SECOND
"""How much earlier than SQL the lock store's bound ends: more than the two clocks drift in one lead."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a holder may rely on: the lock is its own until then.

    `duration` is counted from a moment of the monotonic clock before the clock was read that `locked_until` comes from.
    """

    locked_until: Instant
    duration: Duration
    counted_from: float

    def remaining(self, now: float) -> Duration:
        """What is certainly left of the lock at `now` of the monotonic clock."""
        return remaining(self.duration, self.counted_from, now)


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a holder asks for, of which edition of its queue."""

    token: LockToken
    edition: Edition
    duration: Duration


async def renew(broker: Broker, queue: Queue, token: LockToken, duration: Duration | None = None) -> Promise:
    """Prolong a lock to now + `duration` (the queue's own when absent), only for its holder (S3.15).

    Refuses with `LockLost`, `AlreadySettled`, `MessageNotFound`, or `MessageBusy` while another request holds the row.
    """
    duration = duration or queue.settings.lock_duration
    renewal = Renewal(token, Edition(queue.id, queue.lock_version), duration)
    for look in range(MOST_LOOKS):
        if look:
            await let_others_end(broker, look - 1)
        asked = broker.clock.monotonic()
        answer = await broker.locks.renew(token, duration, renewal.edition)
        if isinstance(answer, Renewed):
            broker.tally.count("renewals_without_sql")
            return Promise(answer.locked_until, answer.remaining, asked)
        (held,) = await broker.store.held([token])
        if held is None or held.queue_id != queue.id:
            raise await _refusal(broker, queue, token)
        ahead = lead(duration, shared_locks=broker.locks.is_shared and answer.asked_at is not None)
        (extended,) = await broker.store.extend([Extension(token, queue.id, ahead, answer.evidence)])
        if extended is not None:
            until = await _promised_until(broker, renewal, answer, extended, ahead)
            return Promise(until, duration, extended.read_after if answer.asked_at is None else asked)
        if lost := await lose(broker, held, answer.evidence):
            raise lost
    raise MessageBusy


async def _promised_until(
    broker: Broker, renewal: Renewal, answer: NotRenewed, extended: Extended, ahead: Duration
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
    lasting = max(duration, extended.before - extended.read_at)
    bound = answer.asked_at + ahead - MARGIN
    record = LockRecord(extended.generation, lasting, bound, promised_until, renewal.edition)
    await broker.locks.record(renewal.token, record)
    return promised_until


async def _refusal(broker: Broker, queue: Queue, token: LockToken) -> Refusal:
    answer = await what_happened(broker, queue, token, asked=None)
    return LockLost() if isinstance(answer, Settled) else answer
