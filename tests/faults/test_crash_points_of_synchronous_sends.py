"""A server may die at any step between an offer and its settlement: the sender hears the truth, and nothing else is left."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.faults.crash_checks import (
    AROUND_CALL,
    MOMENTS,
    CrashSetup,
    client_of_crashing_server,
    server_steps,
    step_parameters,
)
from tests.faults.crashing_server import CrashPoint
from tests.faults.database_access import remaining_messages
from tests.faults.fleet import SETTINGS
from tests.faults.retrying_client import RetryingClient
from tests.faults.workload_steps import CONFLICT, OK, receive_one

LONGER_THAN_A_RESTART = 50

COMPLETION_STEPS = [
    *(CrashPoint("store", "execute", moment) for moment in MOMENTS),
    *(CrashPoint("store", "read_offer", moment) for moment in AROUND_CALL),
    *(CrashPoint("store", "settle_offer", moment) for moment in MOMENTS),
    CrashPoint("reply", "complete"),
    CrashPoint("reply", "messages"),
]
WITHDRAWAL_STEPS = [CrashPoint("store", "withdraw_offer", moment) for moment in MOMENTS]
SHORT_RUN = {
    CrashPoint("store", "execute", "after"),
    CrashPoint("store", "settle_offer", "commit"),
    CrashPoint("store", "settle_offer", "after"),
    CrashPoint("store", "withdraw_offer", "after"),
}


async def ask(client: RetryingClient, wait_seconds: float) -> tuple[int, dict[str, Any]]:
    """Send synchronously, repeating until it is answered or refused."""
    question = {"body_base64": "", "delivery": "synchronous", "wait_seconds": wait_seconds}
    return await client.request("ask", "POST", "/messages", question, {"Idempotency-Key": f"ask-{client.queue}"})


async def hear_the_completion(client: RetryingClient) -> Counter[str]:
    """Send, and complete the message with a reply. The sender hears the reply."""
    asking = asyncio.create_task(ask(client, LONGER_THAN_A_RESTART))
    message = await receive_one(client)
    answer = {"reply": "yes"}
    path = f"/locks/{message['lock_token']}/complete"
    assert (await client.request("answer", "POST", path, answer))[0] == OK
    status, heard = await asking
    assert (status, heard["reply"], heard["sequence_number"]) == (OK, "yes", message["sequence_number"])
    return Counter(completed=1)


async def hear_of_no_receiver(client: RetryingClient) -> Counter[str]:
    """Send while no receiver exists."""
    status, heard = await ask(client, 0.1)
    assert (status, heard["code"]) == (CONFLICT, "no-receiver")
    assert await client.receive() == []
    return Counter()


async def check_crash(
    setup: CrashSetup, step: CrashPoint, workload: Callable[[RetryingClient], Awaitable[Counter[str]]]
) -> None:
    """Run the workload past the step. Only a completed message is left."""
    async with client_of_crashing_server(setup, step) as (client, queue):
        await client.create_queue(**{**SETTINGS, "duplicate_detection_window_seconds": None})
        expected = await workload(client)
    assert Counter(remaining.state for remaining in remaining_messages(setup.database, queue)) == expected


@pytest.mark.behaviour("S1.1")
@pytest.mark.parametrize("step", step_parameters(COMPLETION_STEPS, SHORT_RUN))
async def test_a_step_of_a_completion_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(sqlite_setup, step, hear_the_completion)


@pytest.mark.behaviour("S1.2")
@pytest.mark.parametrize("step", step_parameters(WITHDRAWAL_STEPS, SHORT_RUN))
async def test_a_step_of_a_withdrawal_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(sqlite_setup, step, hear_of_no_receiver)


@pytest.mark.parametrize("step", step_parameters(server_steps(COMPLETION_STEPS), SHORT_RUN))
async def test_a_step_of_a_completion_on_postgresql(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(postgres_setup, step, hear_the_completion)


@pytest.mark.parametrize("step", step_parameters(server_steps(WITHDRAWAL_STEPS), SHORT_RUN))
async def test_a_step_of_a_withdrawal_on_postgresql(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(postgres_setup, step, hear_of_no_receiver)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(COMPLETION_STEPS), ids=str)
async def test_a_step_of_a_completion_on_mariadb(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(mariadb_setup, step, hear_the_completion)
