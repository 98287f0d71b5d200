"""A server may die at any step of any verb: nothing acknowledged is lost, and a repeat under its key has one effect."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

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
from tests.faults.workload_steps import GONE, receive_one, settle


async def run_every_verb(client: RetryingClient, setup: CrashSetup) -> Counter[str]:
    """Send four messages, settle each differently, repeat what may be repeated, and return how they end."""
    for number in range(4):
        await client.send(f"m{number}", b"body", with_key=number > 0)
    held = {message["message_id"]: message for message in await receive_all(client, setup)}
    tokens = [held[f"m{number}"]["lock_token"] for number in range(4)]
    await settle(client, "renew", tokens[0], lock_seconds=60, exact=True)
    await settle(client, "renew", tokens[0], lock_seconds=120)
    await settle(client, "renew", tokens[0], lock_seconds=60, exact=True)
    await settle(client, "complete", tokens[0])
    assert (await client.settle("complete", tokens[0]))[1]["replayed"]
    await settle(client, "abandon", tokens[1], reason="not now")
    await settle(client, "dead_letter", tokens[2], reason="set aside")
    await settle(client, "defer", tokens[3])
    for verb in ("release", "complete"):
        again = await receive_one(client)
        assert (again["message_id"], again["failure_count"]) == ("m1", 1)
        await settle(client, verb, again["lock_token"])
    (deferred,) = await receive_deferred(client, setup, held["m3"]["sequence_number"])
    await settle(client, "complete", deferred["lock_token"])
    return Counter(completed=3, dead_lettered=1)


async def receive_all(client: RetryingClient, setup: CrashSetup) -> list[dict[str, Any]]:
    """Receive four messages, the first without a key and the others under one."""
    held = await client.receive_until_any(with_key=False, wait_seconds=5, max_messages=1, lock_seconds=60)
    held += await client.receive_until_any(wait_seconds=5, max_messages=3, lock_seconds=60)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(held) < 4:  # one was claimed for an answer that was never given
            await asyncio.to_thread(setup.end_locks_except, held)
            held += await client.receive(wait_seconds=1, max_messages=4, lock_seconds=60)
    return held


async def receive_deferred(client: RetryingClient, setup: CrashSetup, number: int) -> list[dict[str, Any]]:
    """Fetch a message by its number, also when the first answer was never given."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (messages := await client.receive(with_key=False, sequence_numbers=[number], lock_seconds=60)):
            await asyncio.to_thread(setup.end_locks_except, [])
    return messages


async def expire_a_lock(client: RetryingClient, setup: CrashSetup) -> Counter[str]:
    """Hold one message until its lock is lost, schedule another one, and return how they end."""
    await client.send("m0", b"body")
    await client.send("m1", b"body", delay_seconds=0.5)
    lost = await receive_one(client)
    await client.settle("renew", lost["lock_token"], lock_seconds=60)
    await asyncio.to_thread(setup.end_locks_except, [])
    ended: set[str] = set()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(ended) < 2:
            for message in await client.receive_until_any(wait_seconds=5, max_messages=1, lock_seconds=60):
                await settle(client, "complete", message["lock_token"])
                ended.add(message["message_id"])
    assert (await client.settle("complete", lost["lock_token"]))[0] == GONE
    return Counter(completed=2)


VERBS = [
    *(
        CrashPoint("store", method, moment)
        for method in ("send_or_replay", "claim_or_replay", "send", "claim")
        for moment in MOMENTS
    ),
    *(CrashPoint("store", method, moment) for method in ("extend", "remove", "claim_by_number") for moment in MOMENTS),
    *(CrashPoint("store", "extend", moment, nth) for nth in (2, 3) for moment in MOMENTS),
    *(CrashPoint("store", "move", moment, nth) for nth in (1, 2, 3, 4) for moment in MOMENTS),
    *(CrashPoint("store", method, moment) for method in ("locked_messages", "tombstones") for moment in AROUND_CALL),
    *(
        CrashPoint("reply", path)
        for path in ("messages", "receive", "renew", "complete", "abandon", "dead-letter", "defer", "release")
    ),
]
SWEEPS = [
    *(CrashPoint("store", "release", moment) for moment in MOMENTS),
    *(CrashPoint("store", method, moment) for method in ("expired_locks", "promote") for moment in AROUND_CALL),
]
LOCK_VERBS = [
    CrashPoint("locks", method, moment)
    for method in ("renew", "ask", "write_record", "expired_generations", "delete_records")
    for moment in AROUND_CALL
]
LOCK_VERBS += [CrashPoint("locks", "write_record", moment, 2) for moment in AROUND_CALL]
LOCK_SWEEPS = [CrashPoint("locks", "expired_records", moment) for moment in AROUND_CALL]
"""Steps of the lock store; without Redis it has none that could be left half done."""

SHORT_RUN = {
    CrashPoint("store", "send_or_replay", "commit"),
    CrashPoint("store", "send", "after"),
    CrashPoint("store", "claim_or_replay", "after"),
    CrashPoint("store", "claim", "after"),
    CrashPoint("store", "remove", "before"),
    CrashPoint("store", "remove", "after"),
    CrashPoint("store", "move", "after"),
    CrashPoint("store", "release", "after"),
    CrashPoint("locks", "write_record", "before"),
    CrashPoint("reply", "messages"),
    CrashPoint("reply", "complete"),
}
"""The steps at which systems like this one fail most often; every run tests them."""


@pytest.mark.behaviour("S2.11")
@pytest.mark.parametrize("step", step_parameters(VERBS, SHORT_RUN))
async def test_a_verb_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(sqlite_setup, step, run_every_verb)


@pytest.mark.parametrize("step", step_parameters(SWEEPS, SHORT_RUN))
async def test_the_sweep_on_sqlite(sqlite_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(sqlite_setup, step, expire_a_lock)


@pytest.mark.parametrize("step", step_parameters(server_steps(VERBS) + LOCK_VERBS, SHORT_RUN))
async def test_a_verb_on_postgresql_with_redis(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(postgres_setup, step, run_every_verb)


@pytest.mark.parametrize("step", step_parameters(server_steps(SWEEPS) + LOCK_SWEEPS, SHORT_RUN))
async def test_the_sweep_on_postgresql_with_redis(postgres_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(postgres_setup, step, expire_a_lock)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(VERBS + LOCK_VERBS), ids=str)
async def test_a_verb_on_mariadb_with_redis(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(mariadb_setup, step, run_every_verb)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize("step", server_steps(SWEEPS + LOCK_SWEEPS), ids=str)
async def test_the_sweep_on_mariadb_with_redis(mariadb_setup: CrashSetup, step: CrashPoint) -> None:
    await check_crash(mariadb_setup, step, expire_a_lock)
