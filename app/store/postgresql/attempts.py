"""Attempts on PostgreSQL: a request with an Idempotency-Key takes effect once, and its answer is kept."""

from collections.abc import Sequence

from app.broker.ports import Admitted, Attempt, AttemptResult
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, Receipt
from app.domain.settlement import LockToken
from app.domain.work_unit import WorkUnit, WorkUnitResult
from app.runtime.clock import Clock
from app.store.pooled.pool import AttemptInUse
from app.store.postgresql import receiving, sending, work_unit
from app.store.postgresql.scan_bounds import ScanBounds
from app.store.postgresql.session import PostgresqlSession
from app.store.shared import message_rows
from app.store.shared.attempts import stored_answer, stored_receipts, stored_unit_result
from app.store.shared.database import SqlSession
from app.store.shared.json_columns import (
    read_tokens,
    write_receipts,
    write_tokens,
    write_unit_result,
)
from app.store.shared.unit_effects import UnitEffects


async def send(
    session: PostgresqlSession, drafts: Sequence[Draft], attempt: Attempt
) -> tuple[AttemptResult[list[Receipt]], list[Admitted]]:
    """Within a transaction: store the drafts, or return the receipts of the first try; and other admitted messages."""
    earlier = await begin(session, attempt)
    if earlier is not None:
        return AttemptResult(await stored_receipts(session, earlier), replayed=True), []
    receipts, admitted = await sending.send_into_groups(session, drafts)
    await answer(session, attempt, write_receipts(receipts))
    return AttemptResult(receipts, replayed=False), admitted


async def execute(
    session: PostgresqlSession, unit: WorkUnit, attempt: Attempt | None
) -> tuple[AttemptResult[WorkUnitResult], UnitEffects | None]:
    """Within a transaction: carry out the unit, or return the result of the first try."""
    earlier = None if attempt is None else await begin(session, attempt)
    if earlier is not None:
        return AttemptResult(await stored_unit_result(session, earlier), replayed=True), None
    effects = await work_unit.execute(session, unit)
    result = effects.result(unit)
    if attempt is not None:
        await answer(session, attempt, write_unit_result(result))
    return AttemptResult(result, replayed=False), effects


async def answer(session: PostgresqlSession, attempt: Attempt, text: str) -> None:
    """Keep the answer of an attempt that this transaction has begun."""
    await session.change("answer_attempt", attempt_key=attempt.key, answer=text)


async def receive(
    session: PostgresqlSession, bounds: ScanBounds, clock: Clock, claim: Claim, attempt: Attempt
) -> AttemptResult[list[Message]]:
    """Within a transaction: claim messages, or return those of the first try that its locks still hold."""
    earlier = await begin(session, attempt)
    if earlier is not None:
        return AttemptResult(await still_locked(session, clock, read_tokens(earlier)), replayed=True)
    messages = await receiving.claim_unbatched(session, bounds, clock, claim)
    if messages:
        await answer(session, attempt, write_tokens(messages))
    else:
        await session.rollback()
    return AttemptResult(messages, replayed=False)


async def still_locked(session: SqlSession, clock: Clock, tokens: Sequence[LockToken]) -> list[Message]:
    """Return the messages that these tokens still lock, in the order of the tokens."""
    read_started_at = clock.monotonic()
    found_rows = await session.fetch("still_locked", numbers=[token.sequence_number for token in tokens])
    return message_rows.messages_locked_by(tokens, found_rows, read_started_at)


async def begin(session: PostgresqlSession, attempt: Attempt) -> str | None:
    """Return the answer of the first try, or None if this is the first. Then no other transaction can begin the attempt
    until this one ends.

    Refuses with `KeyReused`. Raises `AttemptInUse` if the first try is still running.
    """
    if await session.fetch(
        "begin_attempt", attempt_key=attempt.key, fingerprint=attempt.fingerprint, retention=attempt.retention
    ):
        return None
    found_rows = await session.fetch("earlier_attempt", attempt_key=attempt.key)
    if not found_rows:
        raise AttemptInUse
    return stored_answer(found_rows, attempt)
