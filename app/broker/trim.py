"""Trimming the archive: batches go before their time where a copy of them is proven."""

from collections.abc import Sequence
from math import inf

from app.broker.broker import Broker
from app.domain.archive import CopiedBatch, TrimResult


async def trim(broker: Broker, copies: Sequence[CopiedBatch], timeout_seconds: float = inf) -> list[TrimResult]:
    """Remove the batches of which these are copies, one transaction each; what came of each.

    Those that were not reached before the patience was at its end are not in the answer. A repeat goes on there.
    """
    deadline = broker.clock.monotonic() + timeout_seconds
    results: list[TrimResult] = []
    for copy in copies:
        results.append(await broker.store.archive.trim(copy))
        if broker.clock.monotonic() >= deadline:
            break
    broker.counters.count("batches_trimmed", results.count(TrimResult.TRIMMED))
    return results
