"""A server may die at any step of a restore: a repeat restores what is left, and each message returns once."""

from __future__ import annotations

import pytest

from tests.faults.crash_checks import MOMENTS, CrashSetup, client_of_crashing_server, server_steps, step_parameters
from tests.faults.crashing_server import CrashPoint
from tests.faults.database_access import execute
from tests.faults.workload_steps import CREATED

COUNT = 250
"""Messages that take two transactions to restore."""

STEPS = [
    *(CrashPoint("store", "restore", moment, nth) for moment in MOMENTS for nth in (1, 2)),
    CrashPoint("reply", "restore"),
]

SHORT_RUN = {CrashPoint("store", "restore", "commit", 2), CrashPoint("store", "restore", "after"), STEPS[-1]}


async def check_restored_once(setup: CrashSetup, step: CrashPoint) -> None:
    """Purge messages, and restore them past the step."""
    async with client_of_crashing_server(setup, step) as (client, queue):
        names = [f"m{number}" for number in range(COUNT)]
        batch = {"messages": [{"message_id": name, "body": name} for name in names]}
        assert (await client.request("batch", "POST", "/messages/batch", batch))[0] == CREATED
        while (await client.request("purge", "POST", "/purge"))[1]["removed"]:
            pass
        while (await client.request("restore", "POST", "/restore"))[1]["restored"]:
            pass
        rows = execute(
            setup.database,
            "SELECT m.message_id FROM message m JOIN queue q ON q.id = m.queue_id WHERE q.name = :queue",
            queue=queue,
        )
        assert sorted(message_id for (message_id,) in rows) == sorted(names)
        counted = execute(setup.database, "SELECT SUM(accepted) FROM accepted_count WHERE queue = :queue", queue=queue)
        assert int(counted[0][0]) == 2 * COUNT


@pytest.mark.parametrize("step", step_parameters(STEPS, SHORT_RUN))
async def test_a_step_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_restored_once(sqlite_setup, step)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(STEPS), ids=str)
async def test_a_step_on_postgresql(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_restored_once(postgres_setup, step)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(STEPS), ids=str)
async def test_a_step_on_mariadb(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_restored_once(mariadb_setup, step)
