"""Queues in named statements, the same for every engine."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from app.broker.ports import DeletedQueue, Taking
from app.domain.instant import Duration
from app.domain.message import MessageState
from app.domain.queue import (
    DEFAULT_ARCHIVE_RETENTION,
    Queue,
    QueueCounts,
    QueueSettings,
    ends_locks,
    is_valid_name,
)
from app.domain.refusals import InvalidRequest, TooManyQueues
from app.store import rows
from app.store.database import Database, Session
from app.store.documents import write_settings


class QueueRecords:
    """`Queues` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, name: str, settings: QueueSettings, most: int | None = None) -> tuple[Queue, bool]:
        """See `Queues`. Of several who create one name at once, one makes it and all get it."""
        if not is_valid_name(name):
            raise InvalidRequest(f"{name} cannot be the name of a queue.")
        while True:
            if present := await self.find(name):
                return present, False
            # Somebody may have been faster, or have deleted it again already.
            if await self._make(name, settings, most) and (queue := await self.find(name)):
                return queue, True

    async def _make(self, name: str, settings: QueueSettings, most: int | None) -> bool:
        async def work(session: Session) -> bool:
            if most is not None:
                await session.fetch("take_turns_of_queues")
                if await _one(session, "find_queue", name=name):
                    return False
                await _allow_more(session, most)
            return bool(await session.change("create_queue", name=name, settings=write_settings(settings)))

        return await self._database.transaction(work)

    async def find(self, name: str) -> Queue | None:
        """See `Queues`. Only a valid name reaches the database: MariaDB ignores trailing blanks, PostgreSQL fails on NUL."""
        return await _one(self._database, "find_queue", name=name) if is_valid_name(name) else None

    async def by_id(self, queue_id: int) -> Queue | None:
        """See `Queues`."""
        return await _one(self._database, "queue_by_id", id=queue_id)

    async def page(self, after: str, most: int) -> list[Queue]:
        """See `Queues`."""
        return [rows.queue(row) for row in await self._database.fetch("page_of_queues", after=after, most=most)]

    async def change(self, queue: Queue, settings: QueueSettings) -> Queue | None:
        """See `Queues`."""

        takes_locks = ends_locks(queue.settings, settings)

        async def work(session: Session) -> Queue | None:
            # A statement of its own, because within an UPDATE MariaDB would wait for rows that others hold.
            newest = await session.fetch("newest_lock", id=queue.id) if takes_locks else ((0,),)
            changed = await session.change(
                "change_queue",
                id=queue.id,
                version=queue.version,
                settings=write_settings(settings),
                takes_locks=int(takes_locks),
                newest_lock=newest[0][0],
            )
            if not changed:
                return None
            return await _one(session, "queue_by_id", id=queue.id)

        return await self._database.transaction(work)

    async def takings(self, most: int) -> list[Taking]:
        """See `Queues`."""
        return [Taking(*row) for row in await self._database.fetch("takings", most=most)]

    async def end_taking(self, taking: Taking) -> None:
        """See `Queues`."""
        await self._database.change("end_taking", id=taking.queue_id, given_until=taking.given_until)

    async def delete(self, queue: Queue) -> bool:
        """See `Queues`. Its messages can no longer be reached; a background pass archives them."""

        async def work(session: Session) -> bool:
            if not await session.change("delete_queue", id=queue.id, version=queue.version):
                return False
            retention = queue.settings.archive_retention
            await session.change("remember_deleted", id=queue.id, name=queue.name, archive_retention=retention)
            return True

        return await self._database.transaction(work)

    async def last_known(self, queue_id: int) -> DeletedQueue:
        """See `Queues`."""
        return await last_known(self._database, queue_id)

    async def counts(self, queue_ids: Sequence[int]) -> Mapping[int, QueueCounts]:
        """See `Queues`."""
        if not queue_ids:
            return {}
        wanted = list(queue_ids)
        counted: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for queue_id, state, count in await self._database.fetch("count_messages", queue_ids=wanted):
            counted[queue_id][MessageState(state).label] = count
        oldest = await self._database.fetch("oldest_available", queue_ids=wanted)
        waits: dict[int, Duration | None] = {row[0]: row[1] for row in oldest}
        return {
            queue_id: QueueCounts(**counted[queue_id], oldest_available=_not_below_zero(waits.get(queue_id)))
            for queue_id in wanted
        }

    async def total(self, queue_id: int) -> int:
        """See `Queues`."""
        ((total,),) = await self._database.fetch("total_messages", queue_id=queue_id)
        return total


async def last_known(session: Session, queue_id: int) -> DeletedQueue:
    """What is known of a queue that is gone.

    A server that keeps nothing of it may have deleted it: then the name is that of the counts, if there is one.
    """
    for name, retention in await session.fetch("deleted_queue", id=queue_id):
        return DeletedQueue(name, retention)
    for (name,) in await session.fetch("counted_name", id=queue_id):
        return DeletedQueue(name, DEFAULT_ARCHIVE_RETENTION)
    return DeletedQueue("", DEFAULT_ARCHIVE_RETENTION)


async def _allow_more(session: Session, most: int) -> None:
    ((count,),) = await session.fetch("count_queues")
    if count >= most:
        raise TooManyQueues(f"This server has reached its limit of queues (PEEKLOCK_MAX_QUEUES): {most}.")


async def _one(session: Session, statement: str, /, **values: str | int) -> Queue | None:
    found = await session.fetch(statement, **values)
    return rows.queue(found[0]) if found else None


def _not_below_zero(wait: Duration | None) -> Duration | None:
    """A message that came between two looks at the clock, or before the clock was set back, has not waited yet."""
    return None if wait is None else max(0, wait)
