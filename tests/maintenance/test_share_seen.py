"""What each process has seen of the database is shared with the others."""

import asyncio
from collections.abc import Mapping
from typing import cast

from app.broker.ports.store import Store
from app.maintenance.share_seen import SHARE_SECONDS, SeenSharing
from tests.virtual_clock import VirtualClock

OTHERS = {"timeline:1": 2}
"""What the other processes know: this one is connected to a former primary."""


class SilentStore:
    """A store whose database does not answer."""

    def __init__(self) -> None:
        self.learned: list[Mapping[str, int]] = []

    def seen(self) -> Mapping[str, int]:
        return {"timeline:1": 1}

    def learn(self, seen: Mapping[str, int]) -> None:
        self.learned.append(seen)

    async def database_id(self) -> str:
        return "database"

    async def highest_number(self) -> int:
        return await asyncio.get_running_loop().create_future()


class Record:
    """Implements `SharedRecord`."""

    async def raise_to(self, seen: Mapping[str, int]) -> Mapping[str, int]:
        """See `SharedRecord`."""
        return {**seen, **OTHERS}


async def test_a_process_learns_of_another_primary_while_its_database_does_not_answer() -> None:
    store, clock, reports = SilentStore(), VirtualClock(), list[str]()
    sharing = SeenSharing(cast("Store", store), Record(), clock, lambda name, _error: reports.append(name))
    sharing.start()
    await clock.advance(3 * SHARE_SECONDS)
    assert store.learned[2:] != []
    assert store.learned[-1] == OTHERS
    assert reports == []
    stopping = asyncio.create_task(sharing.stop())
    await clock.advance(60)
    await stopping
