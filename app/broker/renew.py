"""Renew: the holder needs longer.

With a shared lock store most renewals end there, inside a bound that SQL has granted ahead; SQL
itself is written about once in four. `asked_at`, the lock store's clock read *before* SQL is
written, sets the bound and the promise; the deadline that may later serve as evidence is set from
its clock read *after*. So a process paused in between can neither promise beyond what SQL holds
nor leave evidence against a promise that lives.

Crash windows: dead before the SQL write, nothing changed. Dead after it, the lock lasts until its
bound and no record speaks against it; the message comes back later, never earlier.
"""

from dataclasses import dataclass

from app.broker.broker import Broker
from app.broker.ports import Extended, Extension, NotRenewed, Renewed
from app.broker.settling import lose, what_happened
from app.domain.instant import SECOND, Duration, Instant
from app.domain.queue import Queue, lead
from app.domain.refusals import LockLost, Refusal
from app.domain.settlement import LockToken, Settled

MARGIN: Duration = 2 * SECOND
"""How much earlier than SQL the lock store's bound ends: more than the two clocks drift in one lead."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a holder may rely on: the lock is its own until then."""

    locked_until: Instant
    remaining: Duration


async def renew(broker: Broker, queue: Queue, token: LockToken, duration: Duration | None = None) -> Promise:
    """Prolong a lock to now + `duration` (the queue's own when absent), only for its holder (S3.15).

    Refuses with `LockLost`, `AlreadySettled` or `MessageNotFound`.
    """
    duration = duration or queue.settings.lock_duration
    answer = await broker.locks.renew(token, duration)
    if isinstance(answer, Renewed):
        broker.tally.count("renewals_without_sql")
        return Promise(answer.locked_until, answer.remaining)
    ahead = lead(duration, shared_locks=broker.locks.is_shared and answer.asked_at is not None)
    (extended,) = await broker.store.extend([Extension(token, queue.id, ahead, answer.evidence)])
    if extended is None:
        raise await _refusal(broker, queue, token, answer.evidence)
    return await _recorded(broker, token, duration, ahead, answer, extended)


async def _recorded(
    broker: Broker, token: LockToken, duration: Duration, ahead: Duration, answer: NotRenewed, extended: Extended
) -> Promise:
    if answer.asked_at is None:
        return Promise(extended.read_at + duration, duration)
    await broker.locks.record(token, extended.generation, duration, answer.asked_at + ahead - MARGIN)
    return Promise(answer.asked_at + duration, duration)


async def _refusal(broker: Broker, queue: Queue, token: LockToken, evidence: int) -> Refusal:
    (held,) = await broker.store.held([token])
    if held is not None and held.queue_id == queue.id and (not held.is_live or held.lock_generation == evidence):
        return await lose(broker, held, evidence)
    answer = await what_happened(broker, queue, token, asked=None)
    return LockLost() if isinstance(answer, Settled) else answer
