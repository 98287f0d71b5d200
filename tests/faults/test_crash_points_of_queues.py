"""A server may die at any step of a batch, of sealing, or of making and deleting a queue: a repeat ends what was begun."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.faults.caller import Caller
from tests.faults.crash_walk import AROUND, MOMENTS, Place, chosen, prove
from tests.faults.crashing_server import Step
from tests.faults.fleet import SETTINGS
from tests.faults.outside import digest, execute, remnants
from tests.faults.waiting import PATIENCE, until

BODY, WRITTEN = b"body", "Ym9keQ=="
WISH = {"wait_seconds": 5, "max_messages": 4, "lock_seconds": 60}
ACTIONS = ("complete", "abandon", "dead_letter", "defer")


async def walk(caller: Caller, place: Place) -> Counter[str]:
    """Send a batch, settle it mixed, have it sealed, and make the queue anew; how the messages end."""
    await send_batch(caller)
    await settle_mixed(caller)
    await until(lambda: is_sealed(caller, place), "what has ended is sealed")
    await make_anew(caller, place)
    return Counter(completed=3, purged=3)


async def send_batch(caller: Caller) -> None:
    """All of a batch is stored, and each message once, however often it is sent under its key."""
    for number in range(4):
        # The checker hears that they may be there; the answer is looked at here.
        caller.journal.intend("send", message_id=f"m{number}", digest=digest(BODY))
    messages = [{"message_id": f"m{number}", "body_base64": WRITTEN} for number in range(4)]
    key = {"Idempotency-Key": "batch"}
    status, answer = await caller.ask("batch", "POST", "/messages/batch", {"messages": messages}, key)
    assert (status, [result["result"] for result in answer["results"]]) == (201, ["sent"] * 4)


async def settle_mixed(caller: Caller) -> None:
    """Each settlement has one effect, although a server has died after some of them."""
    held: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        while len(held) < 4:
            held += await caller.receive_something(**WISH)
    settlements = [
        {"action": action, "lock_token": one["lock_token"]} for action, one in zip(ACTIONS, held, strict=True)
    ]
    status, answer = await caller.ask("mixed", "POST", "/settle", {"settlements": settlements})
    assert status == 200
    assert [result.get("outcome") for result in answer["results"]] == [
        "completed",
        "abandoned",
        "dead_lettered",
        "deferred",
    ]
    (again,) = await caller.receive_something(**WISH)
    assert (again["message_id"], again["failure_count"]) == (held[1]["message_id"], 1)
    assert (await caller.settle("complete", again["lock_token"]))[0] == 200


async def make_anew(caller: Caller, place: Place) -> None:
    """A queue that was deleted is gone with what it held, and its name is free."""
    await caller.send("waiting", BODY)
    assert (await caller.ask("delete", "DELETE", ""))[0] in (204, 404)
    await until(lambda: endings(caller, place)["purged"] == 3, "what the queue held is archived")
    await caller.create_queue(**SETTINGS)
    await caller.send("later", BODY)
    (later,) = await caller.receive_something(**WISH)
    assert later["message_id"] == "later"
    assert (await caller.settle("complete", later["lock_token"]))[0] == 200


def endings(caller: Caller, place: Place) -> Counter[str]:
    """How the messages of the caller's queue have ended so far."""
    return Counter(remnant.state for remnant in remnants(place.database, caller.queue))


def is_sealed(caller: Caller, place: Place) -> bool:
    """Whether all archived messages of the queue are in a batch, and each batch holds what it says."""
    unsealed = execute(
        place.database, "SELECT 1 FROM archive WHERE queue = :queue AND export_batch IS NULL", queue=caller.queue
    )
    wrong = execute(
        place.database,
        "SELECT b.number FROM export_batch b WHERE b.removed_at IS NULL AND b.row_count <> "
        "(SELECT COUNT(*) FROM archive a WHERE a.export_batch = b.number)",
    )
    assert not wrong
    return not unsealed


STEPS = [
    *(Step("queues", method, moment) for method in ("create", "delete") for moment in MOMENTS),
    *(Step("archive", "seal", moment) for moment in MOMENTS),
    *(Step("store", "send_once", moment) for moment in MOMENTS),
    *(Step("store", method, moment) for method in ("remove", "move") for moment in MOMENTS),
    *(Step("reply", path) for path in ("batch", "settle")),
]
"""`remove` and `move` come first for the mixed settlement, which does both at once."""

SHORT = {
    Step("queues", "create", "commit"),
    Step("queues", "delete", "commit"),
    Step("archive", "seal", "commit"),
    Step("store", "send_once", "commit"),
    Step("store", "remove", "after"),
    Step("store", "move", "after"),
    Step("reply", "settle"),
}
"""Those after which most is left half done; these are tried in every run."""

ON_SERVERS = [step for step in STEPS if step.moment in AROUND or step.what in ("create", "delete", "seal", "send_once")]
"""Those that exist on a server, where the COMMIT of a settlement is part of its one statement."""


@pytest.mark.parametrize("step", chosen(STEPS, SHORT))
async def test_a_step_on_sqlite(sqlite_place: Place, step: Step) -> None:
    await prove(sqlite_place, step, walk)


@pytest.mark.faults("all")
@pytest.mark.parametrize("step", chosen(ON_SERVERS, SHORT))
async def test_a_step_on_postgresql_with_redis(postgres_place: Place, step: Step) -> None:
    await prove(postgres_place, step, walk)


@pytest.mark.faults("all")
@pytest.mark.parametrize("step", [pytest.param(step, id=str(step)) for step in STEPS if step.moment != "commit"])
async def test_a_step_on_mariadb_with_redis(mariadb_place: Place, step: Step) -> None:
    await prove(mariadb_place, step, walk)
