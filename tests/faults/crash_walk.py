"""Walks past a step at which the server dies: the places they happen in, and what is left held against what was promised."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.domain.instant import HOUR
from tests.faults.caller import Caller
from tests.faults.conservation import EARLY, check
from tests.faults.crashing_server import Nursery, Step
from tests.faults.fleet import SETTINGS
from tests.faults.journal import read
from tests.faults.outside import execute, remnants

MOMENTS = ("before", "commit", "after")
AROUND = ("before", "after")

TRANSACTIONS = frozenset({"send_once", "claim_once", "edit", "cancel", "withdraw", "redrive"})
"""What has a COMMIT of its own on a server; of other methods it is part of their one statement."""


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


Walk = Callable[[Caller, Place], Awaitable[Counter[str]]]


def chosen(steps: Sequence[Step], short: Collection[Step]) -> list[Any]:
    """The steps as parameters: few for every run, the others for `--faults=all`."""
    selections = ((step, "short" if step in short else "all") for step in steps)
    return [pytest.param(step, id=str(step), marks=pytest.mark.faults(selection)) for step, selection in selections]


def whole(steps: Sequence[Step]) -> list[Any]:
    """The steps without those at a COMMIT, which cannot be told apart from other statements on this engine."""
    return [pytest.param(step, id=str(step)) for step in steps if step.moment != "commit"]


def apart(steps: Sequence[Step]) -> list[Step]:
    """Those that exist on a server, where the COMMIT of most verbs is part of their one statement."""
    return [step for step in steps if step.moment != "commit" or step.what in TRANSACTIONS]


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
    broken = [one for one in check(read([place.directory / queue]), left) if one.kind not in EARLY]
    assert not broken, "\n".join(map(str, broken))
    endings = Counter(remnant.state for remnant in left)
    assert endings == expected, f"they have ended as {endings}, not as {expected}"
