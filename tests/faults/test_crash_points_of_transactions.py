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
    without_commit_steps,
)
from tests.faults.crashing_server import CrashPoint
from tests.faults.retrying_client import RetryingClient

OK = 200

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
        await client.send(f"m{number}", b"body")
        (message,) = await client.receive_until_any(wait_seconds=5, lock_seconds=60, max_messages=1)
        token = message["lock_token"]
        if number:
            assert (await client.settle("renew", token, lock_seconds=60))[0] == OK
        assert await client.complete_and_send(token, f"next-{number}", b"next") == OK
        (following,) = await client.receive_until_any(wait_seconds=5, lock_seconds=60, max_messages=1)
        assert following["message_id"] == f"next-{number}"
        assert (await client.settle("complete", following["lock_token"]))[0] == OK
    return Counter(completed=4)


@pytest.mark.behaviour("S1.10", "S1.11")
@pytest.mark.parametrize("step", step_parameters(STEPS, SHORT_RUN))
async def test_a_step_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(sqlite_setup, step, complete_and_send)


@pytest.mark.parametrize("step", step_parameters(server_steps(STEPS), SHORT_RUN))
async def test_a_step_on_postgresql(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(postgres_setup, step, complete_and_send)


@pytest.mark.faults("all")
@pytest.mark.parametrize("step", without_commit_steps(STEPS))
async def test_a_step_on_mariadb(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(mariadb_setup, step, complete_and_send)
