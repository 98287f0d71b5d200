"""Claims on PostgreSQL with `ScanBounds` of their own, under a clock that moves only when a test sets it."""

from collections.abc import Sequence
from typing import Any

from app.domain.queue import Queue
from app.runtime.clock import SystemClock
from app.store.postgresql import receiving
from app.store.postgresql.scan_bounds import ScanBounds
from app.store.postgresql.store import PostgresqlStore
from app.store.shared.rows import Row
from tests.contract.store_fixture import PostgresqlFixture, bodies, claim


class ClaimRecorder:
    """Claims like a separate process, and records how many index entries the last claim skipped."""

    def __init__(self, store_fixture: PostgresqlFixture) -> None:
        assert isinstance(store_fixture.store, PostgresqlStore)
        self.seconds = 0.0
        self.scan_bounds = ScanBounds(lambda: self.seconds)
        self.skipped = 0
        self._pool = store_fixture.store._pool

    async def claim(self, queue: Queue, most: int, **fields: Any) -> list[bytes]:
        """Return the bodies of the next messages."""
        (messages,) = await receiving.claim(self, self.scan_bounds, SystemClock(), [claim(queue, most, **fields)])
        return bodies(messages)

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        found = await self._pool.fetch(name, **values)
        if name in ("claim", "claim_one") and found:
            self.skipped = found[-1][receiving.ENTRIES_READ] - len(found)
        return found

    async def change(self, name: str, /, **values: Any) -> int:
        return await self._pool.change(name, **values)
