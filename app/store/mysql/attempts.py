"""Attempts on MariaDB and MySQL: a request with an Idempotency-Key takes effect once, and its answer is kept."""

from collections.abc import Sequence

from app.broker.ports import Attempt
from app.store.mysql.session import MysqlSession
from app.store.pooled.pool import AttemptInUse
from app.store.shared.attempts import stored_answer
from app.store.shared.database import LockWaitTimeout
from app.store.shared.rows import Row


async def begin(session: MysqlSession, attempt: Attempt) -> str | None:
    """Return the answer of the first try, or None if this is the first. Then no other transaction can begin the attempt
    until this one ends.

    Refuses with `KeyReused`. Raises `AttemptInUse` if the first try is still running.
    """
    return stored_answer(await _fetch_earlier(session, attempt), attempt)


async def _fetch_earlier(session: MysqlSession, attempt: Attempt) -> Sequence[Row]:
    """Return the row of the first try's answer, or no row if this is the first try."""
    try:
        *_, earlier = await session.execute(
            session.render("attempt_for_update", attempt_key=attempt.key),
            session.render(
                "begin_attempt", attempt_key=attempt.key, fingerprint=attempt.fingerprint, retention=attempt.retention
            ),
            session.render("earlier_attempt", attempt_key=attempt.key),
        )
    except LockWaitTimeout as error:
        # Another repeat may have locked the row. Read its answer without a lock.
        if answered := await session.fetch("earlier_attempt", attempt_key=attempt.key):
            return answered
        raise AttemptInUse from error
    return earlier.rows


async def answer(session: MysqlSession, attempt: Attempt, text: str) -> None:
    """Keep the answer of an attempt that this transaction has begun."""
    await session.execute(answer_statement(session, attempt, text))


def answer_statement(session: MysqlSession, attempt: Attempt, answer: str) -> bytes:
    """Return the statement that saves the answer for repeats of the attempt."""
    return session.render(
        "answer_attempt",
        attempt_key=attempt.key,
        fingerprint=attempt.fingerprint,
        answer=answer,
        retention=attempt.retention,
    )
