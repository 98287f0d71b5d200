"""Trim: remove archive batches before their retention ends, if the caller proves to have a copy."""

from collections.abc import Sequence
from math import inf

from app.broker.broker import Broker
from app.domain.archive import CopiedBatch, TrimResult


async def trim(broker: Broker, copies: Sequence[CopiedBatch], timeout_seconds: float = inf) -> list[TrimResult]:
    """Remove these copied batches, one transaction each; return a result for each.

    Batches that were not reached before the timeout have no result. A repeated call continues with them.
    """
    deadline = broker.clock.monotonic() + timeout_seconds
    results: list[TrimResult] = []
    for copy in copies:
        results.append(await broker.store.archive.trim(copy))
        if broker.clock.monotonic() >= deadline:
            break
    broker.counters.count("batches_trimmed", results.count(TrimResult.TRIMMED))
    return results
