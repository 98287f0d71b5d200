"""A server may die at any step of a verb that takes no lock: what it acknowledged is kept, and a repeat completes the
rest."""

from __future__ import annotations

import asyncio
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
from tests.faults.polling import TIMEOUT_SECONDS
from tests.faults.retrying_client import RetryingClient
from tests.faults.workload_steps import GONE, OK, receive_one, settle

HOUR_SECONDS = 3600


async def run_every_verb(client: RetryingClient, setup: CrashSetup) -> Counter[str]:
    """Apply each operation once to its own message, and return how they end."""
    await send_volatile(client)
    await receive_and_delete(client, setup)
    await edit(client)
    await cancel(client)
    await redrive(client)
    await purge(client)
    await change_the_queue(client)
    return Counter(scheduled=1, received=1, completed=3, cancelled=1, purged=3)


async def send_volatile(client: RetryingClient) -> None:
    """A volatile message may be lost; sent again durably under its id it is stored, and once."""
    message = {"message_id": "volatile", "body_base64": "Ym9keQ==", "durability": "volatile", "delay_seconds": 3600}
    assert (await client.request("post", "POST", "/messages", message))[0] == 202
    await client.send("volatile", b"body", delay_seconds=HOUR_SECONDS)


async def receive_and_delete(client: RetryingClient, setup: CrashSetup) -> None:
    """A server that crashes before the answer reaches the receiver loses the message, which then is archived as
    received; no receiver has both."""
    number = await client.send("taken", b"body")
    receive_request = {"mode": "receive_and_delete", "max_messages": 1}
    there = OK
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while there == OK:
            _, taken = await client.request("take", "POST", "/messages/receive", receive_request)
            there, _ = await client.request("look", "GET", f"/messages/{number}")
            assert there == 404 or not taken["messages"]
            await asyncio.to_thread(setup.end_locks_except, [])  # such as that of a claim whose server has died


async def edit(client: RetryingClient) -> None:
    """An acknowledged edit is stored completely."""
    number = await client.send("edited", b"body", delay_seconds=HOUR_SECONDS)
    changes = {"delay_seconds": 0, "priority": 9, "properties": {"edited": True}}
    assert (await client.request("edit", "PATCH", f"/messages/{number}", changes))[0] == OK
    edited = await receive_one(client)
    assert (edited["message_id"], edited["priority"], edited["properties"]) == ("edited", 9, {"edited": True})
    await settle(client, "complete", edited["lock_token"])


async def cancel(client: RetryingClient) -> None:
    """Cancelled once; a repeat whose first answer was lost is answered that the message does not exist."""
    number = await client.send("cancelled", b"body", delay_seconds=HOUR_SECONDS)
    assert (await client.request("cancel", "DELETE", f"/messages/{number}"))[0] in (204, 404)


async def redrive(client: RetryingClient) -> None:
    """Available again with its counts reset, once."""
    await client.send("redriven", b"body")
    dead = await receive_one(client)
    # By a call of which the checker knows nothing, because for it a dead-lettered message has ended.
    assert (await client.request("set aside", "POST", f"/locks/{dead['lock_token']}/dead-letter", {}))[0] == OK
    assert (await client.request("redrive", "POST", "/dead-letter/redrive", {}))[0] == OK
    again = await receive_one(client)
    assert (again["message_id"], again["delivery_count"], again["failure_count"]) == ("redriven", 1, 0)
    await settle(client, "complete", again["lock_token"])


async def purge(client: RetryingClient) -> None:
    """Two statements remove available and locked messages; a repeat removes what the first left."""
    for number in range(3):
        await client.send(f"purged-{number}", b"body")
    held = await receive_one(client)
    status, _ = await client.request("purge", "POST", "/purge", {"states": ["available", "locked"]})
    assert status == OK
    assert (await client.settle("complete", held["lock_token"]))[0] == GONE


async def change_the_queue(client: RetryingClient) -> None:
    """A change revokes the locks, although its repeat finds equal settings."""
    await client.send("taken-away", b"body")
    held = await receive_one(client)
    assert (await client.request("change", "PATCH", "", {"lock_duration_seconds": 45}))[0] == OK
    again = await receive_one(client)
    assert (again["message_id"], again["failure_count"]) == ("taken-away", 0)
    assert (await client.settle("complete", held["lock_token"]))[0] == GONE
    await settle(client, "complete", again["lock_token"])


VERBS = [
    *(CrashPoint("store", method, moment) for method in ("send", "remove", "edit", "cancel") for moment in MOMENTS),
    *(CrashPoint("store", method, moment) for method in ("redrive", "withdraw") for moment in MOMENTS),
    *(CrashPoint("store", "remove", moment, nth=4) for moment in MOMENTS),
    *(CrashPoint("store", "read", moment, nth) for nth in (2, 3) for moment in AROUND_CALL),
    *(CrashPoint("store", "browse_metadata", moment, nth) for nth in (1, 3) for moment in AROUND_CALL),
    *(CrashPoint("store", "locks_of_queue", moment) for moment in AROUND_CALL),
    *(CrashPoint("store", "move", moment, nth=2) for moment in MOMENTS),
    *(CrashPoint("reply", path) for path in ("messages", "receive", "PATCH", "DELETE", "redrive", "purge")),
]
"""`remove` comes first for receive-and-delete, then for two completions, then for the purge of what is locked. `read`
comes second for the edit, after a look for what was received and deleted, and third for the cancellation.
`browse_metadata` comes twice for the redrive, then for the purge. `move` comes first for what is redriven, then for the changed queue."""

SHORT_RUN = {
    CrashPoint("store", "send", "before"),
    CrashPoint("store", "remove", "before"),
    CrashPoint("store", "edit", "commit"),
    CrashPoint("store", "withdraw", "after"),
    CrashPoint("store", "redrive", "after"),
    CrashPoint("store", "locks_of_queue", "before"),
    CrashPoint("reply", "DELETE"),
}
"""The steps that leave most work half done; every run tests them."""


@pytest.mark.parametrize("step", step_parameters(VERBS, SHORT_RUN))
async def test_a_verb_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(sqlite_setup, step, run_every_verb)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", step_parameters(server_steps(VERBS), SHORT_RUN))
async def test_a_verb_on_postgresql_with_redis(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(postgres_setup, step, run_every_verb)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(VERBS), ids=str)
async def test_a_verb_on_mariadb_with_redis(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(mariadb_setup, step, run_every_verb)
