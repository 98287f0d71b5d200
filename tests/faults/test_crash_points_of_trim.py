"""A server may die at any step of trimming: a batch is present or removed as a whole, and a repeat says which."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.archive import ArchiveBatch
from app.domain.instant import HOUR
from app.domain.queue import QueueSettings
from app.runtime.clock import SystemClock
from app.store.open import open_store
from tests.contract.store_fixture import claim, completion, draft
from tests.faults.crash_checks import MOMENTS, CrashSetup, client_of_crashing_server
from tests.faults.crashing_server import CrashPoint
from tests.faults.database_access import execute
from tests.faults.workload_steps import OK

STEPS = [*(CrashPoint("archive", "trim", moment) for moment in MOMENTS), CrashPoint("reply", "trim")]


async def check_trimmed_once(setup: CrashSetup, step: CrashPoint) -> None:
    """Trim one batch past the step, then the other."""
    one, other = await seal_old_batches(setup)
    async with client_of_crashing_server(setup, step) as (client, _):

        async def trim(batch: ArchiveBatch) -> str:
            copy = {"number": batch.number, "row_count": batch.row_count, "digest": batch.digest}
            status, answer = await client.request("trim", "POST", "/v1/archive/trim", {"batches": [copy]})
            assert status == OK
            return answer["batches"][0]["result"]

        # Trimmed says that count and digest were found again, so that all of it was there until then.
        assert await trim(one) in ("trimmed", "already_removed")
        assert (rows_of(setup, one), rows_of(setup, other)) == (0, other.row_count)
        assert await trim(one) == "already_removed"
        assert await trim(other) == "trimmed"
        assert rows_of(setup, other) == 0


async def seal_old_batches(setup: CrashSetup) -> Sequence[ArchiveBatch]:
    """Two sealed batches of messages that ended two hours ago."""
    store = await open_store(setup.database, SystemClock())
    queue, _ = await store.queues.create(f"trimmed-{secrets.token_hex(4)}", QueueSettings())
    batches: list[ArchiveBatch] = []
    for size in (3, 2):
        await store.send([draft(queue) for _ in range(size)])
        held = await store.claim(claim(queue, size))
        assert await store.remove([completion(queue, message) for message in held]) == [True] * size
        older = (
            "UPDATE archive SET settled_at = settled_at - :by WHERE sequence_number IN "
            "(SELECT sequence_number FROM archive_seal WHERE export_batch IS NULL)"
        )
        execute(setup.database, older, by=2 * HOUR)
        first = await store.archive.first_unsealed(0)
        batch = first and await store.archive.seal(first)
        assert batch
        assert batch.row_count == size
        batches.append(batch)
    await store.close()
    return batches


def rows_of(setup: CrashSetup, batch: ArchiveBatch) -> int:
    """How many messages of a batch are there."""
    counted: Any = execute(
        setup.database,
        "SELECT COUNT(*) FROM archive WHERE sequence_number IN "
        "(SELECT sequence_number FROM archive_seal WHERE export_batch = :number)",
        number=batch.number,
    )
    return counted[0][0]


@pytest.mark.faults
@pytest.mark.parametrize("step", STEPS, ids=str)
async def test_a_step_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_trimmed_once(sqlite_setup, step)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", STEPS, ids=str)
async def test_a_step_on_postgresql(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_trimmed_once(postgres_setup, step)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", STEPS, ids=str)
async def test_a_step_on_mariadb(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_trimmed_once(mariadb_setup, step)
