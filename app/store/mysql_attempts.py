"""Attempts on MariaDB and MySQL: what carries an Idempotency-Key takes effect once, and its answer is kept."""

from app.broker.ports import Attempt
from app.domain.refusals import KeyReused
from app.store.mysql_session import Session
from app.store.pool import AttemptHeld, LockWaitEnded


async def begin(session: Session, attempt: Attempt) -> str | None:
    """The answer of the first try, or None if this is it: then nobody else gets past here until the transaction ends.

    Refuses with `KeyReused`. Raises `AttemptHeld` where the first try is under way.
    """
    try:
        *_, earlier = await session.ask(
            session.text("hold_attempt", key=attempt.key),
            session.text("begin_attempt", key=attempt.key, fingerprint=attempt.fingerprint, keep=attempt.keep),
            session.text("earlier_attempt", key=attempt.key),
        )
    except LockWaitEnded as error:
        raise AttemptHeld from error
    if not earlier.rows:
        return None
    ((fingerprint, answer),) = earlier.rows
    if fingerprint != attempt.fingerprint:
        raise KeyReused
    return answer


def kept(session: Session, attempt: Attempt, answer: str) -> bytes:
    """The statement that keeps the answer for whoever tries again."""
    return session.text(
        "answer_attempt", key=attempt.key, fingerprint=attempt.fingerprint, answer=answer, keep=attempt.keep
    )
