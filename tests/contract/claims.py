"""Claims on PostgreSQL with floors of their own, under a clock that stands still until told."""

from collections.abc import Sequence
from typing import Any

from app.domain.queue import Queue
from app.runtime.clock import SystemClock
from app.store import postgresql_receiving as receiving
from app.store.floors import Floors
from app.store.postgresql import PostgresStore
from app.store.rows import Row
from tests.contract.subject import PostgresSubject, bodies, claim


class WatchedClaims:
    """Claims as of a process of its own, and how many index entries the last one went past in vain."""

    def __init__(self, subject: PostgresSubject) -> None:
        assert isinstance(subject.store, PostgresStore)
        self.seconds = 0.0
        self.floors = Floors(lambda: self.seconds)
        self.passed = 0
        self._pool = subject.store._pool

    async def claim(self, queue: Queue, most: int) -> list[bytes]:
        """The bodies of the next messages."""
        (messages,) = await receiving.claim(self, self.floors, SystemClock(), [claim(queue, most)])
        return bodies(messages)

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        found = await self._pool.fetch(name, **values)
        if name == "claim" and found:
            self.passed = found[-1][receiving.PASSED] - len(found)
        return found

    async def change(self, name: str, /, **values: Any) -> int:
        return await self._pool.change(name, **values)
