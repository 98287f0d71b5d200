"""Depths on PostgreSQL: counts rows before and after the changes of background loops and administrators."""

from collections.abc import Sequence
from typing import Any, TypeVar

from app.store.shared.database import Database, SqlSession, Work
from app.store.shared.rows import Row

Result = TypeVar("Result")

MOVING_STATEMENTS = frozenset(
    {"dead_letter", "redrive", "promote", "reschedule", "delete_messages", "block", "release_blocked"}
)
"""The cold statements that change the state or queue of messages. Their transactions have locked the rows."""


class DepthCountingDatabase:
    """`Database` over another one. Its transactions keep the depths of queues exact."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """See `Database`."""
        return await self._database.fetch(name, **values)

    async def change(self, name: str, /, **values: Any) -> int:
        """See `Database`."""
        return await self._database.change(name, **values)

    async def transaction(self, work: Work[Result]) -> Result:
        """See `Database`."""
        return await self._database.transaction(lambda session: work(DepthCountingSession(session)))


class DepthCountingSession:
    """A session that counts messages out of the state they leave and into the one they enter."""

    def __init__(self, session: SqlSession) -> None:
        self._session = session

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """See `Session`."""
        return await self._session.fetch(name, **values)

    async def change(self, name: str, /, **values: Any) -> int:
        """See `Session`."""
        if name not in MOVING_STATEMENTS:
            return await self._session.change(name, **values)
        numbers = values["numbers"] if "numbers" in values else [values["sequence_number"]]
        await self._session.change("adjust_depths", numbers=numbers, sign=-1)
        changed = await self._session.change(name, **values)
        await self._session.change("adjust_depths", numbers=numbers, sign=1)
        return changed
