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
)
from tests.faults.crashing_server import CrashPoint
from tests.faults.retrying_client import RetryingClient
from tests.faults.workload_steps import CREATED, OK, complete_next, send_and_receive

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

AT_COMMIT = {CrashPoint("transactions", "commit", "commit")}


async def complete_and_send(client: RetryingClient, _setup: CrashSetup) -> Counter[str]:
    """Complete a message together with a send, which joins once."""
    token = await send_and_receive(client, "m")
    status, opened = await client.request("open", "POST", "/v1/transactions", {"timeout_seconds": 60})
    assert status == CREATED
    transaction = {"transaction_id": opened["id"]}
    sent = {"message_id": "next", "body_base64": base64.b64encode(b"next").decode(), **transaction}
    key = {"Idempotency-Key": "join-next"}
    assert (await client.request("join", "POST", "/messages", sent, key))[0] == CREATED
    status, joined = await client.request("join", "POST", f"/locks/{token}/complete", transaction)
    assert (status, joined["pending"]) == (OK, True)
    status, shown = await client.request("look", "GET", f"/v1/transactions/{opened['id']}")
    assert (status, shown["member_count"]) == (OK, 2)
    assert await client.commit(opened["id"], token, "next", b"next") == OK
    await complete_next(client, "next")
    return Counter(completed=2)


@pytest.mark.behaviour("S1.26")
@pytest.mark.parametrize("step", step_parameters(STEPS, AT_COMMIT))
async def test_a_step_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(sqlite_setup, step, complete_and_send)


@pytest.mark.parametrize("step", step_parameters(server_steps(STEPS), SHORT_RUN))
async def test_a_step_on_postgresql(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(postgres_setup, step, complete_and_send)


@pytest.mark.parametrize("step", step_parameters(server_steps(STEPS), AT_COMMIT))
async def test_a_step_on_mariadb(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(mariadb_setup, step, complete_and_send)
