"""Trim: remove archive batches before their retention ends, if the caller proves to have a copy."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from app.broker.ports import ArchiveStore, Counters
from app.domain.archive import CopiedBatch, TrimResult
from app.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class TrimPorts:
    """What trims use."""

    archive: ArchiveStore
    counters: Counters
    clock: Clock


async def trim(ports: TrimPorts, copies: Sequence[CopiedBatch], timeout_seconds: float = inf) -> list[TrimResult]:
    """Remove these copied batches, one transaction each; return a result for each.

    Batches that were not reached before the timeout have no result. A repeated call continues with them.
    """
    deadline = ports.clock.monotonic() + timeout_seconds
    results: list[TrimResult] = []
    for copy in copies:
        results.append(await ports.archive.trim(copy))
        if ports.clock.monotonic() >= deadline:
            break
    ports.counters.count("batches_trimmed", results.count(TrimResult.TRIMMED))
    return results
