"""A server may die at any step of a commit with a state: the message, what it sends and one version, or none of them."""

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
    *(CrashPoint("store", "locked_message_id", moment) for moment in AROUND_CALL),
    # The second commit finds that the lock was renewed: its first try is the second call.
    *(CrashPoint("store", "execute", moment, nth) for moment in MOMENTS for nth in (1, 3)),
    CrashPoint("reply", "commit"),
]
AT_COMMIT = {CrashPoint("store", "execute", "commit")}
SHORT_RUN = AT_COMMIT | {CrashPoint("reply", "commit")}


async def process_two_messages(client: RetryingClient, _setup: CrashSetup) -> Counter[str]:
    """Commit two messages with a version and a send each, the second one under a renewed lock."""
    key = client.queue
    for number in range(2):
        token = await send_and_receive(client, f"m{number}", is_renewed=number > 0)
        status, answer = await client.commit_with_state(token, key, number, f"next-{number}", b"next")
        assert (status, answer["version"], answer["duplicate"]) == (OK, number + 1, False)
        await complete_next(client, f"next-{number}")
    status, history = await client.request("history", "GET", f"/v1/states/{key}/history")
    versions = [(version["version"], version["message_id"]) for version in history["items"]]
    assert (status, versions) == (OK, [(1, "m0"), (2, "m1")])
    return Counter(completed=4)


@pytest.mark.parametrize("step", step_parameters(STEPS, AT_COMMIT))
async def test_a_step_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(sqlite_setup, step, process_two_messages)


@pytest.mark.parametrize("step", step_parameters(server_steps(STEPS), SHORT_RUN))
async def test_a_step_on_postgresql(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(postgres_setup, step, process_two_messages)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(STEPS), ids=str)
async def test_a_step_on_mariadb(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(mariadb_setup, step, process_two_messages)
