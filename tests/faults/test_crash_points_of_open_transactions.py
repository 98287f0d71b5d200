"""A server may die at any step of an open transaction: its members wait for another one, or have all taken effect."""

from __future__ import annotations

import base64
from collections import Counter

import pytest

from tests.faults.crash_checks import (
    MOMENTS,
    CrashSetup,
    check_crash,
    server_steps,
    step_parameters,
    without_commit_steps,
)
from tests.faults.crashing_server import CrashPoint
from tests.faults.retrying_client import RetryingClient

OK, CREATED = 200, 201

STEPS = [
    *(
        CrashPoint("transactions", method, moment)
        for method in ("join_sends", "join_settlements", "commit")
        for moment in MOMENTS
    ),
    CrashPoint("reply", "commit"),
]
SHORT_RUN = {
    CrashPoint("transactions", "join_sends", "after"),
    CrashPoint("transactions", "join_settlements", "after"),
    CrashPoint("transactions", "commit", "commit"),
    CrashPoint("transactions", "commit", "after"),
}


async def complete_and_send(client: RetryingClient, _setup: CrashSetup) -> Counter[str]:
    """Complete a message together with a send. The queue detects the duplicate of a send that has joined twice."""
    await client.send("m", b"body")
    (message,) = await client.receive_until_any(wait_seconds=5, lock_seconds=60, max_messages=1)
    token = message["lock_token"]
    status, opened = await client.request("open", "POST", "/v1/transactions", {"timeout_seconds": 60})
    assert status == CREATED
    transaction = {"transaction_id": opened["id"]}
    sent = {"message_id": "next", "body_base64": base64.b64encode(b"next").decode(), **transaction}
    assert (await client.request("join", "POST", "/messages", sent))[0] == CREATED
    status, joined = await client.request("join", "POST", f"/locks/{token}/complete", transaction)
    assert (status, joined["pending"]) == (OK, True)
    assert await client.commit(opened["id"], token, "next", b"next") == OK
    (following,) = await client.receive_until_any(wait_seconds=5, lock_seconds=60, max_messages=1)
    assert following["message_id"] == "next"
    assert (await client.settle("complete", following["lock_token"]))[0] == OK
    return Counter(completed=2)


@pytest.mark.behaviour("S1.26")
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
