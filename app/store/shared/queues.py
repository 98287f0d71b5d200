"""Queues in named statements, the same for every engine."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from app.broker.ports.queues import DeletedQueue, LockRevocation
from app.domain.instant import Duration
from app.domain.queue import (
    DEFAULT_ARCHIVE_RETENTION,
    LEVEL_OF_SETTING,
    REVOCATION_PERIOD,
    SHARED_BODIES_LEVEL,
    SYNCHRONOUS_LEVEL,
    HeldLocks,
    Queue,
    QueueCounts,
    QueueSettings,
    history_retention,
    is_valid_name,
    required_level,
    revokes_locks,
)
from app.domain.refusals import InvalidRequest, QueueIsTarget, TooManyQueues
from app.store.shared import rows
from app.store.shared.database import Database, ReplicatedRecords, SqlSession
from app.store.shared.forwarding import check_forwarding
from app.store.shared.json_columns import write_settings
from app.store.shared.lock_versions import start_lock_version

UNCOMMITTED = 6
"""What counts of messages have in place of a state for sends that wait for a commit."""

COUNTED_STATES = {**{number: state.label for number, state in rows.STATES.items()}, UNCOMMITTED: "uncommitted"}


class QueueRecords(ReplicatedRecords):
    """`QueueStore` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, name: str, settings: QueueSettings, limit: int | None = None) -> tuple[Queue, bool]:
        """See `QueueStore`. When several callers create one name at once, one creates it and all receive the same queue."""
        if not is_valid_name(name):
            raise InvalidRequest(f"{name} is not a valid queue name.")
        while True:
            if present := await self.by_name(name):
                return present, False
            # Another caller may have created it first, or have deleted it again already.
            if await self._insert(name, settings, limit) and (queue := await self.by_name(name)):
                return queue, True

    async def start_lock_version(self) -> None:
        """See `QueueStore`."""
        await start_lock_version(self._database)

    async def _insert(self, name: str, settings: QueueSettings, limit: int | None) -> bool:
        async def work(session: SqlSession) -> bool:
            if limit is not None:
                await session.fetch("serialize_queue_creation")
                if await _fetch_queue(session, "find_queue", name=name):
                    return False
                await _check_queue_limit(session, limit)
            await check_forwarding(session, name, settings, QueueSettings())
            values = {
                "settings": write_settings(settings),
                "feature_level": required_level(settings),
                "group_in_flight": settings.group_in_flight,
                "history_retention": history_retention(settings),
            }
            return bool(await session.change("create_queue", name=name, **values))

        return await self._database.transaction(work)

    async def by_name(self, name: str) -> Queue | None:
        """See `QueueStore`. Only a valid name reaches the database: MariaDB ignores trailing blanks, PostgreSQL fails on NUL."""
        return await _fetch_queue(self._database, "find_queue", name=name) if is_valid_name(name) else None

    async def by_id(self, queue_id: int) -> Queue | None:
        """See `QueueStore`."""
        return await _fetch_queue(self._database, "queue_by_id", id=queue_id)

    async def page(self, after: str, limit: int) -> list[Queue]:
        """See `QueueStore`."""
        return [rows.queue(row) for row in await self._database.fetch("page_of_queues", after=after, limit=limit)]

    async def that_forward_dead_letters(self) -> list[Queue]:
        """See `QueueStore`."""
        level = LEVEL_OF_SETTING["forward_dead_letters_to"]
        queues = [rows.queue(row) for row in await self._database.fetch("forwarding_dead_letters", level=level)]
        return [queue for queue in queues if queue.settings.forward_dead_letters_to is not None]

    async def dead_letter_sources(self, name: str) -> list[Queue]:
        """See `QueueStore`."""
        level = LEVEL_OF_SETTING["forward_dead_letters_to"]
        queues = [rows.queue(row) for row in await self._database.fetch("dead_letter_sources", level=level)]
        return [queue for queue in queues if queue.settings.forward_dead_letters_to == name]

    async def change(self, queue: Queue, settings: QueueSettings, locks: HeldLocks = HeldLocks.REVOKE) -> Queue | None:
        """See `QueueStore`."""

        is_revoking = revokes_locks(queue.settings, settings, locks)

        async def work(session: SqlSession) -> Queue | None:
            await check_forwarding(session, queue.name, settings, queue.settings)
            # A statement of its own: within an UPDATE, MariaDB would wait for rows that other transactions have locked.
            newest_lock = await session.fetch("newest_lock", id=queue.id) if is_revoking else ((0,),)
            changed = await session.change(
                "change_queue",
                id=queue.id,
                version=queue.version,
                settings=write_settings(settings),
                feature_level=required_level(settings),
                synchronous_level=SYNCHRONOUS_LEVEL,
                shared_bodies_level=SHARED_BODIES_LEVEL,
                group_in_flight=settings.group_in_flight,
                history_retention=history_retention(settings),
                admits_groups=int(queue.settings.group_in_flight != settings.group_in_flight),
                revokes_locks=int(is_revoking),
                newest_lock=newest_lock[0][0],
            )
            if not changed:
                return None
            return await _fetch_queue(session, "queue_by_id", id=queue.id)

        return await self._database.transaction(work)

    async def revocations(self, limit: int) -> list[LockRevocation]:
        """See `QueueStore`."""
        found = await self._database.fetch("revocations", period=REVOCATION_PERIOD, limit=limit)
        return [LockRevocation(queue_id, granted_until, bool(is_over)) for queue_id, granted_until, is_over in found]

    async def end_revocation(self, revocation: LockRevocation) -> None:
        """See `QueueStore`."""
        await self._database.change("end_revocation", id=revocation.queue_id, granted_until=revocation.granted_until)

    async def delete(self, queue: Queue) -> bool:
        """See `QueueStore`. Its messages can no longer be reached. A background loop archives them."""

        async def work(session: SqlSession) -> bool:
            # Lock the queue first, so that no subscription begins.
            await session.fetch("queue_for_update", name=queue.name)
            await _check_no_subscription(session, queue.name)
            if not await session.change("delete_queue", id=queue.id, version=queue.version):
                return False
            retention = queue.settings.archive_retention
            await session.change("delete_moves", queue_id=queue.id)
            await session.change("add_deleted_queue", id=queue.id, name=queue.name, archive_retention=retention)
            return True

        return await self._database.transaction(work)

    async def check_deletable(self, queue: Queue) -> None:
        """See `QueueStore`."""
        await _check_no_subscription(self._database, queue.name)

    async def find_deleted(self, queue_id: int) -> DeletedQueue:
        """See `QueueStore`."""
        return await last_known(self._database, queue_id)

    async def counts(self, queue_ids: Sequence[int]) -> Mapping[int, QueueCounts]:
        """See `QueueStore`."""
        if not queue_ids:
            return {}
        ids = list(queue_ids)
        counted: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for queue_id, state, count in await self._database.fetch("count_messages", queue_ids=ids):
            # A newer server may have stored states that this version does not know.
            if state in COUNTED_STATES:
                counted[queue_id][COUNTED_STATES[state]] = count
        oldest = await self._database.fetch("oldest_available", queue_ids=ids)
        waits: dict[int, Duration | None] = {row[0]: row[1] for row in oldest}
        return {
            queue_id: QueueCounts(**counted[queue_id], oldest_available=_clamped(waits.get(queue_id)))
            for queue_id in ids
        }

    async def total(self, queue_id: int) -> int:
        """See `QueueStore`."""
        ((total,),) = await self._database.fetch("total_messages", queue_id=queue_id)
        return total


async def last_known(session: SqlSession, queue_id: int) -> DeletedQueue:
    """Return the record of a deleted queue.

    If a server deleted the queue without keeping a record, the name comes from the accepted counts, if they have one.
    """
    for name, retention in await session.fetch("deleted_queue", id=queue_id):
        return DeletedQueue(name, retention)
    for (name,) in await session.fetch("queue_name_from_counts", id=queue_id):
        return DeletedQueue(name, DEFAULT_ARCHIVE_RETENTION)
    return DeletedQueue("", DEFAULT_ARCHIVE_RETENTION)


async def _check_no_subscription(session: SqlSession, name: str) -> None:
    """Refuse with `QueueIsTarget` the target of a subscription."""
    for subscription, topic in await session.fetch("subscription_of_queue", target_queue=name):
        raise QueueIsTarget(f"Subscription {subscription} of topic {topic} sends to queue {name}; delete it first.")


async def _check_queue_limit(session: SqlSession, limit: int) -> None:
    ((count,),) = await session.fetch("count_queues")
    if count >= limit:
        raise TooManyQueues(f"This server has reached its limit of queues (PEEKLOCK_MAX_QUEUES): {limit}.")


async def _fetch_queue(session: SqlSession, statement: str, /, **values: str | int) -> Queue | None:
    found_rows = await session.fetch(statement, **values)
    return rows.queue(found_rows[0]) if found_rows else None


def _clamped(wait: Duration | None) -> Duration | None:
    """A message that was stored between two readings of the clock, or before the clock was set back, has waited 0."""
    return None if wait is None else max(0, wait)
