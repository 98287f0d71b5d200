"""Attempts on MariaDB and MySQL: what carries an Idempotency-Key takes effect once, and its answer is kept."""

from collections.abc import Sequence

from app.broker.ports import Attempt
from app.domain.refusals import KeyReused
from app.store.mysql_session import Session
from app.store.pool import AttemptHeld, LockWaitEnded
from app.store.rows import Row


async def begin(session: Session, attempt: Attempt) -> str | None:
    """The answer of the first try, or None if this is it: then nobody else gets past here until the transaction ends.

    Refuses with `KeyReused`. Raises `AttemptHeld` where the first try is under way.
    """
    earlier = await _begin(session, attempt)
    if not earlier:
        return None
    ((fingerprint, answer),) = earlier
    if fingerprint != attempt.fingerprint:
        raise KeyReused
    return answer


async def _begin(session: Session, attempt: Attempt) -> Sequence[Row]:
    """What the first try was answered, no row where this is it."""
    try:
        *_, earlier = await session.ask(
            session.text("hold_attempt", key=attempt.key),
            session.text("begin_attempt", key=attempt.key, fingerprint=attempt.fingerprint, keep=attempt.keep),
            session.text("earlier_attempt", key=attempt.key),
        )
    except LockWaitEnded as error:
        # Perhaps another repeat holds it. The answer that it has is read without a lock.
        if answered := await session.fetch("earlier_attempt", key=attempt.key):
            return answered
        raise AttemptHeld from error
    return earlier.rows


def kept(session: Session, attempt: Attempt, answer: str) -> bytes:
    """The statement that keeps the answer for whoever tries again."""
    return session.text(
        "answer_attempt", key=attempt.key, fingerprint=attempt.fingerprint, answer=answer, keep=attempt.keep
    )
