"""What is stored of the first try of a request with an Idempotency-Key."""

from collections.abc import Iterable

from app.broker.ports import Attempt
from app.domain.refusals import KeyReused
from app.store.records.rows import Row


def stored_answer(found_rows: Iterable[Row], attempt: Attempt) -> str | None:
    """Return the answer of the first try from its row, or None without a row. Refuses with `KeyReused`."""
    for fingerprint, answer in found_rows:
        if fingerprint != attempt.fingerprint:
            raise KeyReused
        return answer
    return None
