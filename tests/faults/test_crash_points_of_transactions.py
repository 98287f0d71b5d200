"""A server may die at any step of a request that settles and sends: both take effect, or neither does."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.crash_checks import (
    AROUND_CALL,
    MOMENTS,
    CrashSetup,
    check_crash,
    server_steps,
    step_parameters,
)
from tests.faults.crashing_server import CrashPoint
from tests.faults.retrying_client import RetryingClient
from tests.faults.workload_steps import OK, complete_next, send_and_receive

STEPS = [
    # The second call finds that the lock was renewed, and the third one knows it.
    *(CrashPoint("store", "execute", moment, nth) for moment in MOMENTS for nth in (1, 3)),
    *(CrashPoint("store", "locked_messages", moment) for moment in AROUND_CALL),
    CrashPoint("reply", "execute"),
]
SHORT_RUN = {
    CrashPoint("store", "execute", "commit"),
    CrashPoint("store", "execute", "after"),
    CrashPoint("reply", "execute"),
}


async def complete_and_send(client: RetryingClient, setup: CrashSetup) -> Counter[str]:
    """Complete a message together with a send, once under a new lock and once under a renewed one."""
    for number in range(2):
        token = await send_and_receive(client, f"m{number}", is_renewed=number > 0)
        assert await client.complete_and_send(token, f"next-{number}", b"next") == OK
        await complete_next(client, f"next-{number}")
    return Counter(completed=4)


@pytest.mark.behaviour("S1.10", "S1.11")
@pytest.mark.parametrize("step", step_parameters(STEPS, SHORT_RUN))
async def test_a_step_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(sqlite_setup, step, complete_and_send)


@pytest.mark.parametrize("step", step_parameters(server_steps(STEPS), SHORT_RUN))
async def test_a_step_on_postgresql(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(postgres_setup, step, complete_and_send)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(STEPS), ids=str)
async def test_a_step_on_mariadb(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(mariadb_setup, step, complete_and_send)
