"""Bodies that several messages share: the bodies of new drafts, and the deletion of bodies without a reference.

A message refers to its body by id. The reference moves with it between queues and into the archive. A body is stored by
the transaction that stores its first references, and never changed. Every later reference is a copy of one that exists:
the transaction that moves a message into the archive makes it, and deletes the message. So one snapshot that shows a body
without a reference, in a queue or in the archive, proves that it will never have one. The removal reads both in one
SELECT, which is such a snapshot on every engine: MariaDB and MySQL read it without locks. The deletion then needs no
fence.
"""

from collections.abc import Iterable, Mapping

from app.domain.message import Draft
from app.store.shared.database import Database, SqlSession


def shared_bodies(drafts: Iterable[Draft]) -> Mapping[str, bytes]:
    """Return the bodies that these drafts share, by id, each once."""
    return {draft.shared_body_id: draft.body for draft in drafts if draft.shared_body_id is not None}


class SharedBodyRecords:
    """Deletes shared bodies without a reference. Each process reads all bodies in turn, a page at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._after = ""

    async def delete_unreferenced(self, limit: int) -> int:
        """Read the next bodies, at most `limit`, and delete those without a reference. Return how many were deleted."""
        found = await self._database.fetch("shared_bodies", after=self._after, limit=limit)
        self._after = found[-1][0] if len(found) == limit else ""
        unreferenced = [body_id for body_id, is_unreferenced in found if is_unreferenced]

        async def work(session: SqlSession) -> None:
            for body_id in unreferenced:
                await session.change("delete_shared_body", id=body_id)

        if unreferenced:
            await self._database.transaction(work)
        return len(unreferenced)
