"""A server may die at any step of any verb: nothing acknowledged is lost, and a repeat under its key has one effect."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.faults.caller import Caller
from tests.faults.crash_walk import AROUND, MOMENTS, Place, apart, chosen, prove, whole
from tests.faults.crashing_server import Step
from tests.faults.waiting import PATIENCE


async def walk_every_verb(caller: Caller, place: Place) -> Counter[str]:
    """Send four messages, treat each in its own way, and repeat what may be repeated; how they end."""
    for number in range(4):
        await caller.send(f"m{number}", b"body", with_key=number > 0)
    held = {one["message_id"]: one for one in await receive_all(caller, place)}
    tokens = [held[f"m{number}"]["lock_token"] for number in range(4)]
    assert (await caller.settle("renew", tokens[0], lock_seconds=60))[0] == 200
    assert (await caller.settle("complete", tokens[0]))[0] == 200
    assert (await caller.settle("complete", tokens[0]))[1]["replayed"]
    assert (await caller.settle("abandon", tokens[1], reason="not now"))[0] == 200
    assert (await caller.settle("dead_letter", tokens[2], reason="set aside"))[0] == 200
    assert (await caller.settle("defer", tokens[3]))[0] == 200
    (again,) = await caller.receive_something(wait_seconds=5, max_messages=1)
    assert (again["message_id"], again["failure_count"]) == ("m1", 1)
    assert (await caller.settle("complete", again["lock_token"]))[0] == 200
    (deferred,) = await receive_deferred(caller, place, held["m3"]["sequence_number"])
    assert (await caller.settle("complete", deferred["lock_token"]))[0] == 200
    return Counter(completed=3, dead_lettered=1)


async def receive_all(caller: Caller, place: Place) -> list[dict[str, Any]]:
    """Receive four messages, the first without a key and the others under one."""
    held = await caller.receive_something(with_key=False, wait_seconds=5, max_messages=1, lock_seconds=60)
    held += await caller.receive_something(wait_seconds=5, max_messages=3, lock_seconds=60)
    async with asyncio.timeout(PATIENCE):
        while len(held) < 4:  # one was claimed for an answer that was never given
            await asyncio.to_thread(place.end_locks_except, held)
            held += await caller.receive(wait_seconds=1, max_messages=4, lock_seconds=60)
    return held


async def receive_deferred(caller: Caller, place: Place, number: int) -> list[dict[str, Any]]:
    """Fetch a message by its number, also when the first answer was never given."""
    async with asyncio.timeout(PATIENCE):
        while not (messages := await caller.receive(with_key=False, sequence_numbers=[number], lock_seconds=60)):
            await asyncio.to_thread(place.end_locks_except, [])
    return messages


async def let_a_lock_run_out(caller: Caller, place: Place) -> Counter[str]:
    """Hold one message until its lock is lost and schedule another one; how they end."""
    await caller.send("m0", b"body")
    await caller.send("m1", b"body", delay_seconds=0.5)
    (lost,) = await caller.receive_something(wait_seconds=5, max_messages=1, lock_seconds=60)
    await caller.settle("renew", lost["lock_token"], lock_seconds=60)
    await asyncio.to_thread(place.end_locks_except, [])
    ended: set[str] = set()
    async with asyncio.timeout(PATIENCE):
        while len(ended) < 2:
            for message in await caller.receive_something(wait_seconds=5, max_messages=1, lock_seconds=60):
                assert (await caller.settle("complete", message["lock_token"]))[0] == 200
                ended.add(message["message_id"])
    assert (await caller.settle("complete", lost["lock_token"]))[0] == 410
    return Counter(completed=2)


VERBS = [
    *(Step("store", method, moment) for method in ("send_once", "claim_once", "send", "claim") for moment in MOMENTS),
    *(Step("store", method, moment) for method in ("extend", "remove", "claim_these") for moment in MOMENTS),
    *(Step("store", "move", moment, nth) for nth in (1, 2, 3) for moment in MOMENTS),
    *(Step("store", method, moment) for method in ("held", "tombstones") for moment in AROUND),
    *(Step("reply", path) for path in ("messages", "receive", "renew", "complete", "abandon", "dead-letter", "defer")),
]
SWEEPS = [
    *(Step("store", "release", moment) for moment in MOMENTS),
    *(Step("store", method, moment) for method in ("ended_locks", "awaken") for moment in AROUND),
]
LOCK_VERBS = [Step("locks", method, moment) for method in ("renew", "record", "evidence", "drop") for moment in AROUND]
LOCK_SWEEPS = [Step("locks", "expired", moment) for moment in AROUND]
"""Steps of the lock store; without Redis it has none that could be left half done."""

SHORT = {
    Step("store", "send_once", "commit"),
    Step("store", "send", "after"),
    Step("store", "claim_once", "after"),
    Step("store", "claim", "after"),
    Step("store", "remove", "before"),
    Step("store", "remove", "after"),
    Step("store", "move", "after"),
    Step("store", "release", "after"),
    Step("locks", "record", "before"),
    Step("reply", "messages"),
    Step("reply", "complete"),
}
"""Where most has gone wrong in systems like this one; these are tried in every run."""


@pytest.mark.behaviour("S2.11")
@pytest.mark.parametrize("step", chosen(VERBS, SHORT))
async def test_a_verb_on_sqlite(sqlite_place: Place, step: Step) -> None:
    await prove(sqlite_place, step, walk_every_verb)


@pytest.mark.parametrize("step", chosen(SWEEPS, SHORT))
async def test_the_sweep_on_sqlite(sqlite_place: Place, step: Step) -> None:
    await prove(sqlite_place, step, let_a_lock_run_out)


@pytest.mark.parametrize("step", chosen(apart(VERBS) + LOCK_VERBS, SHORT))
async def test_a_verb_on_postgresql_with_redis(postgres_place: Place, step: Step) -> None:
    await prove(postgres_place, step, walk_every_verb)


@pytest.mark.parametrize("step", chosen(apart(SWEEPS) + LOCK_SWEEPS, SHORT))
async def test_the_sweep_on_postgresql_with_redis(postgres_place: Place, step: Step) -> None:
    await prove(postgres_place, step, let_a_lock_run_out)


@pytest.mark.faults("all")
@pytest.mark.parametrize("step", whole(VERBS + LOCK_VERBS))
async def test_a_verb_on_mariadb_with_redis(mariadb_place: Place, step: Step) -> None:
    await prove(mariadb_place, step, walk_every_verb)


@pytest.mark.faults("all")
@pytest.mark.parametrize("step", whole(SWEEPS + LOCK_SWEEPS))
async def test_the_sweep_on_mariadb_with_redis(mariadb_place: Place, step: Step) -> None:
    await prove(mariadb_place, step, let_a_lock_run_out)
