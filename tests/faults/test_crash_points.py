"""A server may die at any step of any verb: nothing acknowledged is lost, and a repeat under its key has one effect."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.domain.instant import HOUR
from tests.databases import Run
from tests.faults.caller import Caller
from tests.faults.conservation import EARLY, check
from tests.faults.crashing_server import Nursery, Step
from tests.faults.fleet import SETTINGS
from tests.faults.journal import read
from tests.faults.outside import execute, remnants

MOMENTS = ("before", "commit", "after")


@dataclass(frozen=True, slots=True)
class Place:
    """Servers to be killed, and the database they leave behind."""

    nursery: Nursery
    database: str
    directory: Path

    def end_locks_except(self, messages: Collection[dict[str, Any]]) -> None:
        """Let time pass for every lock that is not one of these: nobody has heard of them."""
        heard = ", ".join(str(message["sequence_number"]) for message in messages) or "0"
        statement = "UPDATE message SET locked_until = locked_until - :by WHERE sequence_number NOT IN"
        execute(self.database, f"{statement} ({heard})", by=HOUR)


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
    while len(held) < 4:  # one was claimed for an answer that was never given
        await asyncio.to_thread(place.end_locks_except, held)
        held += await caller.receive(wait_seconds=1, max_messages=4, lock_seconds=60)
    return held


async def receive_deferred(caller: Caller, place: Place, number: int) -> list[dict[str, Any]]:
    """Fetch a message by its number, also when the first answer was never given."""
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
    while len(ended) < 2:
        for message in await caller.receive_something(wait_seconds=5, max_messages=1, lock_seconds=60):
            assert (await caller.settle("complete", message["lock_token"]))[0] == 200
            ended.add(message["message_id"])
    assert (await caller.settle("complete", lost["lock_token"]))[0] == 410
    return Counter(completed=2)


Walk = Callable[[Caller, Place], Awaitable[Counter[str]]]

VERBS = [
    *(Step("store", method, moment) for method in ("send_once", "claim_once", "send", "claim") for moment in MOMENTS),
    *(Step("store", method, moment) for method in ("extend", "remove", "claim_these") for moment in MOMENTS),
    *(Step("store", "move", moment, nth) for nth in (1, 2, 3) for moment in MOMENTS),
    *(Step("store", method, moment) for method in ("held", "tombstones") for moment in ("before", "after")),
    *(Step("reply", path) for path in ("messages", "receive", "renew", "complete", "abandon", "dead-letter", "defer")),
]
SWEEPS = [
    *(Step("store", "release", moment) for moment in MOMENTS),
    *(Step("store", method, moment) for method in ("ended_locks", "awaken") for moment in ("before", "after")),
]
LOCK_VERBS = [
    Step("locks", method, moment)
    for method in ("renew", "record", "evidence", "drop")
    for moment in ("before", "after")
]
LOCK_SWEEPS = [Step("locks", "expired", moment) for moment in ("before", "after")]
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


def chosen(steps: Sequence[Step]) -> list[Any]:
    """The steps as parameters: few for every run, the others for `--faults=all`."""
    return [pytest.param(step, id=str(step), marks=pytest.mark.faults(_selection(step))) for step in steps]


def _selection(step: Step) -> str:
    return "short" if step in SHORT else "all"


def whole(steps: Sequence[Step]) -> list[Any]:
    """The steps without those at a COMMIT, which cannot be told apart from other statements on this engine."""
    return [pytest.param(step, id=str(step)) for step in steps if step.moment != "commit"]


def apart(steps: Sequence[Step]) -> list[Step]:
    """Those that exist on a server, where the COMMIT of most verbs is part of their one statement."""
    return [step for step in steps if step.moment != "commit" or step.what in ("send_once", "claim_once")]


@pytest.fixture(scope="module")
def sqlite_place(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("crash")
    database = f"sqlite:///{shutil.copy(run.sqlite_template(), directory / 'peeklock.sqlite3')}"
    yield from open_place(directory, database)


@pytest.fixture(scope="module")
def postgres_place(postgres_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    yield from open_place(tmp_path_factory.mktemp("crash"), postgres_url, PEEKLOCK_REDIS_URL=redis_url)


@pytest.fixture(scope="module")
def mariadb_place(mariadb_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    yield from open_place(tmp_path_factory.mktemp("crash"), mariadb_url, PEEKLOCK_REDIS_URL=redis_url)


def open_place(directory: Path, database: str, **environment: str) -> Iterator[Place]:
    """Servers on this database."""
    place = Place(Nursery(directory, PEEKLOCK_DATABASE_URL=database, **environment), database, directory)
    yield place
    place.nursery.kill()


@asynccontextmanager
async def calling(place: Place, step: Step) -> AsyncIterator[tuple[Caller, str]]:
    """A client of a new queue on a server that will die at this step, and be replaced."""
    queue = f"crash-{secrets.token_hex(4)}"
    await asyncio.to_thread(place.nursery.start, step)
    replacement = asyncio.create_task(place.nursery.restart_after_death())
    try:
        async with Caller([place.nursery.url], queue, place.directory / queue) as caller:
            await caller.create_queue(**SETTINGS)
            yield caller, queue
        await replacement  # which fails where the step was never reached
    finally:
        replacement.cancel()
        place.nursery.kill()


async def prove(place: Place, step: Step, walk: Walk) -> None:
    """Walk past the step and hold what is left against what was promised."""
    async with calling(place, step) as (caller, queue):
        expected = await walk(caller, place)
    left = remnants(place.database, queue)
    assert [one for one in check(read([place.directory / queue]), left) if one.kind not in EARLY] == []
    assert Counter(remnant.state for remnant in left) == expected


@pytest.mark.parametrize("step", chosen(VERBS))
async def test_a_verb_on_sqlite(sqlite_place: Place, step: Step) -> None:
    await prove(sqlite_place, step, walk_every_verb)


@pytest.mark.parametrize("step", chosen(SWEEPS))
async def test_the_sweep_on_sqlite(sqlite_place: Place, step: Step) -> None:
    await prove(sqlite_place, step, let_a_lock_run_out)


@pytest.mark.parametrize("step", chosen(apart(VERBS) + LOCK_VERBS))
async def test_a_verb_on_postgresql_with_redis(postgres_place: Place, step: Step) -> None:
    await prove(postgres_place, step, walk_every_verb)


@pytest.mark.parametrize("step", chosen(apart(SWEEPS) + LOCK_SWEEPS))
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
