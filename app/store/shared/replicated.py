"""Waits for the synchronous standbys of a database, for answers that read a change and make none."""

from app.store.shared.database import Database


class ReplicatedRecords:
    """Implements `ReplicatedStore` over a database."""

    _database: Database

    async def await_replication(self) -> None:
        """See `ReplicatedStore`."""
        await self._database.fetch("await_replication")
