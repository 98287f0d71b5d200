"""Attempts: a request with an Idempotency-Key takes effect once, and its answer is kept for repeats."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

import msgspec

from app.broker.ports.attempts import Attempt, AttemptResult
from app.domain.delivery import Claim
from app.domain.message import Draft, Message, Receipt
from app.domain.refusals import KeyReused
from app.domain.weight import weight_of
from app.domain.work_unit import WorkUnit, WorkUnitResult
from app.store.shared.database import SqlSession
from app.store.shared.engine import Engine, Session, UnitEffects
from app.store.shared.json_columns import (
    read_receipts,
    read_tokens,
    read_unit_result,
    write_receipts,
    write_tokens,
    write_unit_result,
)
from app.store.shared.rows import STATES, Row

Result = TypeVar("Result")
Session_contra = TypeVar("Session_contra", bound=SqlSession, contravariant=True)


@dataclass(frozen=True, slots=True)
class Answers(Generic[Session_contra, Result]):
    """How results are kept: `write` returns the text of one, or None if a repeat is to try again. `read` returns the
    result for a repeat, in the transaction that has read its text.
    """

    write: Callable[[Result], str | None]
    read: Callable[[Session_contra, str], Awaitable[Result]]


async def once(
    session: Session,
    engine: Engine[Session],
    attempt: Attempt | None,
    answers: Answers[Session, Result],
    do: Callable[[Session], Awaitable[Result]],
) -> AttemptResult[Result]:
    """Within a transaction: do the work and keep its answer, or return the result of the first try. Refuses with `KeyReused`.

    Without an attempt, do the work.
    """
    if attempt is None:
        return AttemptResult(await do(session), replayed=False)
    earlier = await engine.begin_attempt(session, attempt)
    if earlier is not None:
        return AttemptResult(await answers.read(session, earlier), replayed=True)
    result = await do(session)
    answer = answers.write(result)
    if answer is None:
        await engine.forget_attempt(session)
    else:
        await engine.answer_attempt(session, attempt, answer)
    return AttemptResult(result, replayed=False)


def stored_answer(found_rows: Iterable[Row], attempt: Attempt) -> str | None:
    """Return the answer of the first try from its row, or None without a row. Refuses with `KeyReused`."""
    for fingerprint, answer in found_rows:
        if fingerprint != attempt.fingerprint:
            raise KeyReused
        return answer
    return None


async def stored_receipts(session: SqlSession, answer: str) -> list[Receipt]:
    """Return the receipts of a stored answer. Those of duplicates have the states that their messages have now."""
    return await _with_current_states(session, read_receipts(answer))


async def stored_unit_result(session: SqlSession, answer: str) -> WorkUnitResult:
    """Return the result of a work unit from its stored answer, with receipts as `stored_receipts` returns them."""
    result = read_unit_result(answer)
    return replace(result, receipts=await _with_current_states(session, result.receipts))


async def _with_current_states(session: SqlSession, receipts: list[Receipt]) -> list[Receipt]:
    numbers = sorted({receipt.sequence_number for receipt in receipts if receipt.duplicate})
    if not numbers:
        return receipts
    states = {number: STATES.get(state) for number, state in await session.fetch("states_of", numbers=numbers)}
    return [
        msgspec.structs.replace(receipt, state=states.get(receipt.sequence_number)) if receipt.duplicate else receipt
        for receipt in receipts
    ]


RECEIPTS: Answers[SqlSession, list[Receipt]] = Answers(write_receipts, stored_receipts)
UNIT_RESULT: Answers[SqlSession, WorkUnitResult] = Answers(write_unit_result, stored_unit_result)

CLAIM_WEIGHT = 4 << 10
"""The weight of each requested message. Work that claims a thousand runs alone."""


class AttemptRecords(Engine[Session]):
    """The verbs that may have an attempt."""

    async def send_or_replay(self, drafts: Sequence[Draft], attempt: Attempt) -> AttemptResult[list[Receipt]]:
        """See `SendingStore`."""
        return await self._execute_once(WorkUnit(drafts=drafts), attempt, RECEIPTS, lambda effects: [*effects.receipts])

    async def claim_or_replay(self, claim: Claim, attempt: Attempt) -> AttemptResult[list[Message]]:
        """See `ReceivingStore`. An attempt that finds nothing is not recorded, so that a repeat may find something."""

        async def read(session: Session, answer: str) -> list[Message]:
            return await self.still_locked_within(session, read_tokens(answer))

        answers = Answers(_write_claimed, read)
        do = partial(self.claim_within, claim=claim)
        work = partial(once, engine=self, attempt=attempt, answers=answers, do=do)
        return await self.run(work, CLAIM_WEIGHT * claim.max_messages)

    async def execute(self, unit: WorkUnit, attempt: Attempt | None) -> AttemptResult[WorkUnitResult]:
        """See `WorkUnitStore`."""
        return await self._execute_once(unit, attempt, UNIT_RESULT, lambda effects: effects.result(unit))

    async def _execute_once(
        self,
        unit: WorkUnit,
        attempt: Attempt | None,
        answers: Answers[Session, Result],
        result_of: Callable[[UnitEffects], Result],
    ) -> AttemptResult[Result]:
        tries: list[UnitEffects] = []

        async def do(session: Session) -> Result:
            tries.append(await self.execute_within(session, unit))
            return result_of(tries[-1])

        work = partial(once, engine=self, attempt=attempt, answers=answers, do=do)
        weight = sum(map(weight_of, unit.drafts)) + sum(len(change.value) for change in unit.states)
        result = await self.run(work, weight)
        if not result.replayed:
            # A transaction that collided with another one ran again. The effects of the last one were committed.
            self.on_executed(unit, tries[-1])
        return result


def _write_claimed(messages: Sequence[Message]) -> str | None:
    return write_tokens(messages) if messages else None
