"""A server may die at any step of a verb that takes no lock: what it acknowledged stands, and a repeat ends the rest."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.faults.caller import Caller
from tests.faults.crash_walk import AROUND, MOMENTS, Place, apart, chosen, prove, whole
from tests.faults.crashing_server import Step
from tests.faults.waiting import PATIENCE

HOUR_SECONDS = 3600
SOON = {"wait_seconds": 5, "max_messages": 1, "lock_seconds": 60}


async def walk_every_verb(caller: Caller, place: Place) -> Counter[str]:
    """Do each thing once, to a message of its own; how they end."""
    await send_volatile(caller)
    await receive_and_delete(caller, place)
    await edit(caller)
    await cancel(caller)
    await redrive(caller)
    await purge(caller)
    await change_the_queue(caller)
    return Counter(scheduled=1, received=1, completed=3, cancelled=1, purged=3)


async def send_volatile(caller: Caller) -> None:
    """A volatile message may be lost; sent again durably under its id it is there, and once."""
    message = {"message_id": "volatile", "body_base64": "Ym9keQ==", "durability": "volatile", "delay_seconds": 3600}
    assert (await caller.ask("post", "POST", "/messages", message))[0] == 202
    await caller.send("volatile", b"body", delay_seconds=HOUR_SECONDS)


async def receive_and_delete(caller: Caller, place: Place) -> None:
    """Whoever dies on the way to the receiver loses the message, which then is archived as received; nobody has both."""
    number = await caller.send("taken", b"body")
    wish = {"mode": "receive_and_delete", "max_messages": 1}
    there = 200
    async with asyncio.timeout(PATIENCE):
        while there == 200:
            _, taken = await caller.ask("take", "POST", "/messages/receive", wish)
            there, _ = await caller.ask("look", "GET", f"/messages/{number}")
            assert there == 404 or not taken["messages"]
            await asyncio.to_thread(place.end_locks_except, [])  # such as that of a claim whose server has died


async def edit(caller: Caller) -> None:
    """All of an edit is there once it is acknowledged."""
    number = await caller.send("edited", b"body", delay_seconds=HOUR_SECONDS)
    changes = {"delay_seconds": 0, "priority": 9, "properties": {"edited": True}}
    assert (await caller.ask("edit", "PATCH", f"/messages/{number}", changes))[0] == 200
    (edited,) = await caller.receive_something(**SOON)
    assert (edited["message_id"], edited["priority"], edited["properties"]) == ("edited", 9, {"edited": True})
    assert (await caller.settle("complete", edited["lock_token"]))[0] == 200


async def cancel(caller: Caller) -> None:
    """Cancelled once; a repeat whose first answer was lost hears that the message is not there."""
    number = await caller.send("cancelled", b"body", delay_seconds=HOUR_SECONDS)
    assert (await caller.ask("cancel", "DELETE", f"/messages/{number}"))[0] in (204, 404)


async def redrive(caller: Caller) -> None:
    """Back at work with its counts anew, once."""
    await caller.send("redriven", b"body")
    (dead,) = await caller.receive_something(**SOON)
    # By a call of which the checker knows nothing, because for it a dead-lettered message has ended.
    assert (await caller.ask("set aside", "POST", f"/locks/{dead['lock_token']}/dead-letter", {}))[0] == 200
    assert (await caller.ask("redrive", "POST", "/dead-letter/redrive", {}))[0] == 200
    (again,) = await caller.receive_something(**SOON)
    assert (again["message_id"], again["delivery_count"], again["failure_count"]) == ("redriven", 1, 0)
    assert (await caller.settle("complete", again["lock_token"]))[0] == 200


async def purge(caller: Caller) -> None:
    """What waits and what is locked goes in two statements; a repeat takes what the first left."""
    for number in range(3):
        await caller.send(f"purged-{number}", b"body")
    (held,) = await caller.receive_something(**SOON)
    status, _ = await caller.ask("purge", "POST", "/purge", {"states": ["available", "locked"]})
    assert status == 200
    assert (await caller.settle("complete", held["lock_token"]))[0] == 410


async def change_the_queue(caller: Caller) -> None:
    """A change takes the locks, although its repeat finds nothing left to change."""
    await caller.send("taken-away", b"body")
    (held,) = await caller.receive_something(**SOON)
    assert (await caller.ask("change", "PATCH", "", {"lock_duration_seconds": 45}))[0] == 200
    (again,) = await caller.receive_something(**SOON)
    assert (again["message_id"], again["failure_count"]) == ("taken-away", 0)
    assert (await caller.settle("complete", held["lock_token"]))[0] == 410
    assert (await caller.settle("complete", again["lock_token"]))[0] == 200


VERBS = [
    *(Step("store", method, moment) for method in ("send", "remove", "edit", "cancel") for moment in MOMENTS),
    *(Step("store", method, moment) for method in ("redrive", "withdraw") for moment in MOMENTS),
    *(Step("store", "remove", moment, nth=4) for moment in MOMENTS),
    *(Step("store", "read", moment, nth) for nth in (2, 3) for moment in AROUND),
    *(Step("store", "outlines", moment, nth) for nth in (1, 3) for moment in AROUND),
    *(Step("store", "locks_of_queue", moment) for moment in AROUND),
    *(Step("store", "move", moment, nth=2) for moment in MOMENTS),
    *(Step("reply", path) for path in ("messages", "receive", "PATCH", "DELETE", "redrive", "purge")),
]
"""`remove` comes first for receive-and-delete, then for two completions, then for the purge of what is locked. `read`
comes second for the edit, after a look for what was received and deleted, and third for the cancellation. `outlines`
comes twice for the redrive, then for the purge. `move` comes first for what is redriven, then for the changed queue."""

SHORT = {
    Step("store", "send", "before"),
    Step("store", "remove", "before"),
    Step("store", "edit", "commit"),
    Step("store", "withdraw", "after"),
    Step("store", "redrive", "after"),
    Step("store", "locks_of_queue", "before"),
    Step("reply", "DELETE"),
}
"""Those after which most is left half done; these are tried in every run."""


@pytest.mark.parametrize("step", chosen(VERBS, SHORT))
async def test_a_verb_on_sqlite(sqlite_place: Place, step: Step) -> None:
    await prove(sqlite_place, step, walk_every_verb)


@pytest.mark.faults("all")
@pytest.mark.parametrize("step", chosen(apart(VERBS), SHORT))
async def test_a_verb_on_postgresql_with_redis(postgres_place: Place, step: Step) -> None:
    await prove(postgres_place, step, walk_every_verb)


@pytest.mark.faults("all")
@pytest.mark.parametrize("step", whole(VERBS))
async def test_a_verb_on_mariadb_with_redis(mariadb_place: Place, step: Step) -> None:
    await prove(mariadb_place, step, walk_every_verb)
