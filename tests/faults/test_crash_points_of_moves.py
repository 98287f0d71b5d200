"""A server may die at any step of a move task: the next one goes on, and each message moves once."""

from __future__ import annotations

import pytest

from app.domain.move_task import PAGE_SIZE
from tests.faults.crash_checks import MOMENTS, CrashSetup, client_of_crashing_server, server_steps, step_parameters
from tests.faults.crashing_server import CrashPoint
from tests.faults.moves import check_moved_once, fill, start_move, wait_for_the_end
from tests.faults.retrying_client import RetryingClient

COUNT = PAGE_SIZE + 200
"""Messages of two pages."""

STEPS = [
    *(CrashPoint("moves", "start", moment) for moment in MOMENTS),
    *(CrashPoint("store", "advance_move", moment, nth) for moment in MOMENTS for nth in (1, 2)),
    CrashPoint("reply", "moves"),
]

SHORT_RUN = {
    CrashPoint("moves", "start", "after"),
    CrashPoint("store", "advance_move", "commit"),
    CrashPoint("store", "advance_move", "after"),
}


async def check_move(setup: CrashSetup, step: CrashPoint) -> None:
    """Move messages past the step."""
    async with client_of_crashing_server(setup, step) as (client, queue):
        target = f"{queue}-target"
        async with RetryingClient([setup.servers.url], target, setup.directory / target) as other:
            await other.create_queue()
        names = await fill(client, COUNT)
        await start_move(client, target)
        await wait_for_the_end(client)
        check_moved_once(setup.database, queue, target, names)


@pytest.mark.parametrize("step", step_parameters(STEPS, SHORT_RUN))
async def test_a_step_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_move(sqlite_setup, step)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(STEPS), ids=str)
async def test_a_step_on_postgresql(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_move(postgres_setup, step)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(STEPS), ids=str)
async def test_a_step_on_mariadb(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_move(mariadb_setup, step)
