"""Trim processes one batch at a time and ends at its timeout."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.broker.administration.archive import trim
from app.broker.administration.ports import AdministrationPorts
from app.domain.archive import CopiedBatch, TrimResult
from tests.brokers import ChangedStore, OpenBroker
from tests.virtual_clock import VirtualClock

TRIMMED, UNKNOWN = TrimResult.TRIMMED, TrimResult.UNKNOWN
COPIES = [CopiedBatch(number, 1, "digest") for number in range(1, 6)]


class SlowArchiveStore:
    """An archive that takes a second for each batch and knows the first three batches."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    async def trim(self, copy: CopiedBatch) -> TrimResult:
        await self._clock.advance(1)
        return TRIMMED if copy.number <= 3 else UNKNOWN


@pytest.fixture
async def ports(broker: OpenBroker, clock: VirtualClock) -> AdministrationPorts:
    await clock.advance(10)
    administration: AdministrationPorts = broker.administration
    return replace(administration, store=ChangedStore(broker.store, archive=SlowArchiveStore(clock)))


@pytest.mark.parametrize(
    ("seconds", "results"),
    [
        ({}, [TRIMMED] * 3 + [UNKNOWN] * 2),
        ({"timeout_seconds": 2}, [TRIMMED] * 2),
        ({"timeout_seconds": 0}, [TRIMMED]),
    ],
    ids=["without a limit", "two seconds", "none"],
)
async def test_trim_returns_the_batches_reached_in_time_and_counts_trimmed_ones(
    ports: AdministrationPorts, seconds: dict[str, float], results: Sequence[TrimResult]
) -> None:
    assert await trim(ports, COPIES, **seconds) == results
    counters: Any = ports.counters
    assert counters["batches_trimmed"] == results.count(TRIMMED)
