"""What is stored of the first try of a request with an Idempotency-Key."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from app.broker.ports import Attempt
from app.domain.message import Receipt
from app.domain.refusals import KeyReused
from app.domain.work_unit import WorkUnitResult
from app.store.shared.database import SqlSession
from app.store.shared.json_columns import read_receipts, read_unit_result
from app.store.shared.rows import STATES, Row


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
    """Return the result of a work unit from its stored answer, with such receipts."""
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
