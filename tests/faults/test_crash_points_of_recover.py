"""A server may die at any step of a recovery: a repeat gives the receiver all that it holds, under tokens that count."""

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
from tests.faults.fleet import SETTINGS
from tests.faults.retrying_client import RetryingClient
from tests.faults.workload_steps import GONE, LONG_LOCK_SECONDS, OK, settle

RECEIVER = "worker"

STEPS = [
    *(CrashPoint("store", "recover", moment) for moment in MOMENTS),
    *(CrashPoint("locks", "delete_records", moment) for moment in AROUND_CALL),
    CrashPoint("reply", "recover"),
]
SHORT_RUN = {CrashPoint("store", "recover", "commit"), CrashPoint("reply", "recover")}


async def recover_what_is_held(client: RetryingClient, _setup: CrashSetup) -> Counter[str]:
    """Receive two messages, renew one of the locks, recover both, and complete them under the new tokens."""
    # The locks of a recovery last as long as the queue says, and must outlast a restart.
    await client.create_queue(**SETTINGS | {"lock_duration_seconds": LONG_LOCK_SECONDS})
    for number in range(2):
        await client.send(f"m{number}", b"body")
    held = await client.receive_until_any(wait_seconds=5, max_messages=2, receiver_id=RECEIVER, lock_seconds=60)
    assert len(held) == 2
    await client.settle("renew", held[0]["lock_token"], lock_seconds=60)
    status, answer = await client.request("recover", "POST", "/recover", {"receiver_id": RECEIVER})
    assert status == OK
    tokens = [message["lock_token"] for message in answer["messages"]]
    assert len(tokens) == 2
    for old, new in zip(held, tokens, strict=True):
        assert (await client.request("complete", "POST", f"/locks/{old['lock_token']}/complete"))[0] == GONE
        await settle(client, "complete", new)
    return Counter(completed=2)


@pytest.mark.parametrize("step", step_parameters([step for step in STEPS if step.component != "locks"], SHORT_RUN))
async def test_a_step_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(sqlite_setup, step, recover_what_is_held)


@pytest.mark.parametrize("step", step_parameters(server_steps(STEPS), SHORT_RUN))
async def test_a_step_on_postgresql_with_redis(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(postgres_setup, step, recover_what_is_held)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(STEPS), ids=str)
async def test_a_step_on_mariadb_with_redis(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(mariadb_setup, step, recover_what_is_held)
