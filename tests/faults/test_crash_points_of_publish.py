"""A server may die at any step of a publish: after repeats, every subscription that matches has one copy."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.crash_checks import MOMENTS, CrashSetup, check_crash, server_steps, step_parameters
from tests.faults.crashing_server import CrashPoint
from tests.faults.database_access import remaining_messages
from tests.faults.retrying_client import RetryingClient
from tests.faults.workload_steps import CREATED, OK

STEPS = [*(CrashPoint("store", "send_or_replay", moment) for moment in MOMENTS), CrashPoint("reply", "messages")]
AT_COMMIT = {CrashPoint("store", "send_or_replay", "commit")}
SHORT_RUN = AT_COMMIT | {CrashPoint("reply", "messages")}


async def publish_to_two_queues(client: RetryingClient, setup: CrashSetup) -> Counter[str]:
    """Publish to two subscriptions, one of which forwards to the queue of the client."""
    topic, other, far = (f"{client.queue}-{name}" for name in ("topic", "other", "far"))
    for path, settings in (
        (f"queues/{other}", {}),
        (f"queues/{far}", {"forward_to": client.queue}),
        (f"topics/{topic}", {}),
        (f"topics/{topic}/subscriptions/other", {"target_queue": other}),
        (f"topics/{topic}/subscriptions/far", {"target_queue": far}),
    ):
        status, answer = await client.request("configure", "PUT", f"/v1/{path}", settings)
        assert status in (OK, CREATED), answer
    assert await client.publish(topic, "m", b"body") == CREATED
    assert [remaining.message_id for remaining in remaining_messages(setup.database, other)] == ["m"]
    return Counter(available=1)


@pytest.mark.parametrize("step", step_parameters(STEPS, AT_COMMIT))
async def test_a_step_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(sqlite_setup, step, publish_to_two_queues)


@pytest.mark.parametrize("step", step_parameters(server_steps(STEPS), SHORT_RUN))
async def test_a_step_on_postgresql(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(postgres_setup, step, publish_to_two_queues)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(STEPS), ids=str)
async def test_a_step_on_mariadb(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(mariadb_setup, step, publish_to_two_queues)
