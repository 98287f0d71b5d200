"""Attempts on MariaDB and MySQL: what carries an Idempotency-Key takes effect once, and its answer is kept."""

from collections.abc import Sequence

from app.broker.ports import Attempt
from app.domain.refusals import KeyReused
from app.store.mysql.session import MysqlSession
from app.store.records.rows import Row
from app.store.server.pool import AttemptInUse, LockWaitTimeout


async def begin(session: MysqlSession, attempt: Attempt) -> str | None:
    """The answer of the first try, or None if this is it: then nobody else gets past here until the transaction ends.

    Refuses with `KeyReused`. Raises `AttemptInUse` where the first try is under way.
    """
    earlier = await _fetch_earlier(session, attempt)
    if not earlier:
        return None
    ((fingerprint, answer),) = earlier
    if fingerprint != attempt.fingerprint:
        raise KeyReused
    return answer


async def _fetch_earlier(session: MysqlSession, attempt: Attempt) -> Sequence[Row]:
    """What the first try was answered, no row where this is it."""
    try:
        *_, earlier = await session.execute(
            session.render("attempt_for_update", key=attempt.key),
            session.render("begin_attempt", key=attempt.key, fingerprint=attempt.fingerprint, keep=attempt.retention),
            session.render("earlier_attempt", key=attempt.key),
        )
    except LockWaitTimeout as error:
        # Perhaps another repeat holds it. The answer that it has is read without a lock.
        if answered := await session.fetch("earlier_attempt", key=attempt.key):
            return answered
        raise AttemptInUse from error
    return earlier.rows


def answer_statement(session: MysqlSession, attempt: Attempt, answer: str) -> bytes:
    """The statement that keeps the answer for whoever tries again."""
    return session.render(
        "answer_attempt", key=attempt.key, fingerprint=attempt.fingerprint, answer=answer, keep=attempt.retention
    )
