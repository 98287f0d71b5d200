"""A server may die at any step of a batch, of sealing, or of making and deleting a queue: a repeat ends what was begun."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from app.maintenance.retention import BATCH_SIZE
from app.runtime.clock import SystemClock
from app.store.open import open_store
from tests.faults.crash_checks import (
    AROUND_CALL,
    MOMENTS,
    CrashSetup,
    check_remaining,
    client_of_crashing_server,
    step_parameters,
)
from tests.faults.crashing_server import CrashPoint
from tests.faults.database_access import digest, execute
from tests.faults.fleet import SETTINGS
from tests.faults.polling import TIMEOUT_SECONDS, wait_until
from tests.faults.retrying_client import RetryingClient
from tests.faults.workload_steps import OK, settle

BODY, BODY_BASE64 = b"body", "Ym9keQ=="
RECEIVE_REQUEST = {"wait_seconds": 5, "max_messages": 4, "lock_seconds": 60}
ACTIONS = ("complete", "abandon", "dead_letter", "defer")


async def check_every_verb(setup: CrashSetup, step: CrashPoint) -> None:
    """Send a batch, settle it mixed, have it sealed, and create the queue again. What the first queue held is archived."""
    async with client_of_crashing_server(setup, step) as (client, queue):
        await send_batch(client)
        await settle_mixed(client)
        await wait_until(lambda: is_sealed(client, setup), "what has ended is sealed")
        await recreate_queue(client)
    await archive_orphans(setup)
    check_remaining(setup, queue, Counter(completed=3, purged=3))


async def send_batch(client: RetryingClient) -> None:
    """All of a batch is stored, and each message once, however often it is sent under its key."""
    for number in range(4):
        # The checker hears that they may be there; the answer is looked at here.
        client.journal.record_request("send", message_id=f"m{number}", digest=digest(BODY))
    messages = [{"message_id": f"m{number}", "body_base64": BODY_BASE64} for number in range(4)]
    key = {"Idempotency-Key": "batch"}
    status, answer = await client.request("batch", "POST", "/messages/batch", {"messages": messages}, key)
    assert (status, [result["result"] for result in answer["results"]]) == (201, ["sent"] * 4)


async def settle_mixed(client: RetryingClient) -> None:
    """Each settlement has one effect, although a server has died after some of them."""
    held: list[dict[str, Any]] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(held) < 4:
            held += await client.receive_until_any(**RECEIVE_REQUEST)
    settlements = [
        {"action": action, "lock_token": one["lock_token"]} for action, one in zip(ACTIONS, held, strict=True)
    ]
    status, answer = await client.request("mixed", "POST", "/settle", {"settlements": settlements})
    assert status == OK
    assert [result.get("outcome") for result in answer["results"]] == [
        "completed",
        "abandoned",
        "dead_lettered",
        "deferred",
    ]
    (again,) = await client.receive_until_any(**RECEIVE_REQUEST)
    assert (again["message_id"], again["failure_count"]) == (held[1]["message_id"], 1)
    await settle(client, "complete", again["lock_token"])


async def recreate_queue(client: RetryingClient) -> None:
    """A queue that was deleted is gone with what it held, and its name is free at once."""
    await client.send("waiting", BODY)
    assert (await client.request("delete", "DELETE", ""))[0] in (204, 404)
    await client.create_queue(**SETTINGS)
    await client.send("later", BODY)
    (later,) = await client.receive_until_any(**RECEIVE_REQUEST)
    assert later["message_id"] == "later"
    await settle(client, "complete", later["lock_token"])


async def archive_orphans(setup: CrashSetup) -> None:
    """Run the pass that archives what a deleted queue held. A server runs it every ten seconds."""
    store = await open_store(setup.database, SystemClock())
    await store.delete_expired(BATCH_SIZE)
    await store.close()


def is_sealed(client: RetryingClient, setup: CrashSetup) -> bool:
    """Whether all archived messages of the queue are in a batch, and each batch holds what it says."""
    unsealed = execute(
        setup.database,
        "SELECT 1 FROM archive a LEFT JOIN archive_seal s ON s.sequence_number = a.sequence_number "
        "WHERE a.queue = :queue AND s.export_batch IS NULL",
        queue=client.queue,
    )
    wrong = execute(
        setup.database,
        "SELECT b.number FROM export_batch b WHERE b.removed_at IS NULL AND b.row_count <> "
        "(SELECT COUNT(*) FROM archive a JOIN archive_seal s ON s.sequence_number = a.sequence_number "
        "WHERE s.export_batch = b.number)",
    )
    assert not wrong
    return not unsealed


STEPS = [
    *(CrashPoint("queues", method, moment) for method in ("create", "delete") for moment in MOMENTS),
    *(CrashPoint("archive", "seal", moment) for moment in MOMENTS),
    *(CrashPoint("store", "send_or_replay", moment) for moment in MOMENTS),
    *(CrashPoint("store", method, moment) for method in ("remove", "move") for moment in MOMENTS),
    *(CrashPoint("reply", path) for path in ("batch", "settle")),
]
"""`remove` and `move` come first for the mixed settlement, which does both at once."""

SHORT_RUN = {
    CrashPoint("queues", "create", "commit"),
    CrashPoint("queues", "delete", "commit"),
    CrashPoint("archive", "seal", "commit"),
    CrashPoint("store", "send_or_replay", "commit"),
    CrashPoint("store", "remove", "after"),
    CrashPoint("store", "move", "after"),
    CrashPoint("reply", "settle"),
}
"""The steps that leave most work half done; every run tests them."""

ON_SERVERS = [
    step
    for step in STEPS
    if step.moment in AROUND_CALL or step.method in ("create", "delete", "seal", "send_or_replay")
]
"""Those that exist on a server, where the COMMIT of a settlement is part of its one statement."""


@pytest.mark.parametrize("step", step_parameters(STEPS, SHORT_RUN))
async def test_a_step_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_every_verb(sqlite_setup, step)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", step_parameters(ON_SERVERS, SHORT_RUN))
async def test_a_step_on_postgresql_with_redis(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_every_verb(postgres_setup, step)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", [pytest.param(step, id=str(step)) for step in STEPS if step.moment != "commit"])
async def test_a_step_on_mariadb_with_redis(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_every_verb(mariadb_setup, step)
