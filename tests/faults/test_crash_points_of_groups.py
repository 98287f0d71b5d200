"""A server may die at any step while a group is served: its messages follow in order, and none stands still."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.crash_checks import (
    MOMENTS,
    CrashSetup,
    check_crash,
    server_steps,
    step_parameters,
)
from tests.faults.crashing_server import CrashPoint
from tests.faults.fleet import SETTINGS
from tests.faults.retrying_client import RetryingClient
from tests.faults.workload_steps import settle

COUNT = 4

STEPS = [
    CrashPoint("store", method, moment, nth)
    for method, last in (("send", 2), ("remove", COUNT), ("move", 2))
    for moment in MOMENTS
    for nth in range(1, last + 1)
]
SHORT_RUN = {
    CrashPoint("store", "remove", "commit", 2),
    CrashPoint("store", "remove", "after", 1),
    CrashPoint("store", "move", "commit", 1),
}


async def serve_a_group(client: RetryingClient, _setup: CrashSetup) -> Counter[str]:
    """Complete the messages of a group one by one. The first one is abandoned once, the second one is dead-lettered."""
    await client.create_queue(**SETTINGS, group_in_flight=1)
    for number in range(COUNT + 1):
        await client.send(f"m{number}", b"body", with_key=number % 2 == 0, group_id="g")
    seen: list[str] = []
    while len(seen) < COUNT + 2:
        (message,) = await client.receive_until_any(wait_seconds=5, lock_seconds=60, max_messages=10)
        seen.append(message["message_id"])
        match len(seen):
            case 1:
                verb = "abandon"
            case 3:
                verb = "dead_letter"
            case _:
                verb = "complete"
        await settle(client, verb, message["lock_token"])
    assert seen == ["m0", *(f"m{number}" for number in range(COUNT + 1))]
    return Counter(completed=COUNT, dead_lettered=1)


@pytest.mark.parametrize("step", step_parameters(STEPS, SHORT_RUN))
async def test_a_step_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(sqlite_setup, step, serve_a_group)


@pytest.mark.parametrize("step", step_parameters(server_steps(STEPS), SHORT_RUN))
async def test_a_step_on_postgresql(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(postgres_setup, step, serve_a_group)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(STEPS), ids=str)
async def test_a_step_on_mariadb(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(mariadb_setup, step, serve_a_group)
