"""The statements of background loops and administrators that change messages, the same for every store."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import compress

from app.broker.ports import Admitted, Edit, Promoted, QueueGone, Recovered, Redrive, UnlockedRow, Withdrawal
from app.domain.archive import DEFAULT_BATCH_LIMITS
from app.domain.delivery import Recovery
from app.domain.history import Event
from app.domain.instant import DAY, Duration
from app.domain.message import Message, MessageState
from app.domain.queue import FEATURE_LEVEL, Queue
from app.domain.settlement import Move, Outcome
from app.domain.weight import count_that_fit
from app.store.records import rows
from app.store.records.database import Database, GroupInUse, SqlSession, unavailable_when_closed
from app.store.records.explanation_reads import ExplanationReads
from app.store.records.groups import admit, admit_after, enter, left_groups, release_blocked
from app.store.records.history import HistoryReads, delete_expired_events, record, record_admitted
from app.store.records.message_changes import (
    Change,
    archive_and_delete,
    edit_message,
    end_rows,
    lock_rows,
    lock_unchanged,
    withdraw,
)
from app.store.records.message_reads import MessageReads, read_message
from app.store.records.queues import last_known
from app.store.records.recovery import recover
from app.store.records.states import StateRecords

DELETED_QUEUE_KEEP: Duration = DAY
"""How long the record of a deleted queue is kept at least: longer than any statement that still stores into it."""


DELETIONS = (
    "delete_expired_settlements",
    "delete_expired_attempts",
    "delete_expired_recent_ids",
    "delete_expired_restorable",
    "delete_expired_transactions",
)
"""The statements that delete rows past their time."""


class MessageRecords(MessageReads, ExplanationReads, HistoryReads):
    """`MaintenanceStore`. A store adds the verbs that run per message."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.on_moved: Callable[[Sequence[Move], Sequence[bool]], None] = _no_listener
        self.on_admitted: Callable[[Sequence[Admitted]], None] = _no_admission_listener
        self.states = StateRecords(database)

    async def withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """See `MaintenanceStore`."""
        return await self._withdraw_with("unlocked_for_update", withdrawals)

    async def expire(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """See `MaintenanceStore`."""
        return await self._withdraw_with("expired_for_update", withdrawals)

    async def _withdraw_with(self, statement: str, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        async def change(session: SqlSession, locked: Sequence[int]) -> None:
            await withdraw(session, [withdrawals[index] for index in locked])

        return await self._end(statement, [withdrawal.row for withdrawal in withdrawals], change)

    async def dead_letter(self, rows: Sequence[UnlockedRow], reason: str) -> list[bool]:
        """See `MaintenanceStore`."""

        async def change(session: SqlSession, locked: Sequence[int]) -> None:
            numbers = [rows[index].sequence_number for index in locked]
            await session.change("dead_letter", numbers=numbers, reason=reason)
            await record(session, Event.EXPIRED, numbers, reason)

        return await self._end("expired_for_update", rows, change)

    async def _end(self, statement: str, rows: Sequence[UnlockedRow], change: Change) -> list[bool]:
        """Lock the rows that pass the fences of this statement, and change them. Return whether each was changed.

        The next messages of their groups are admitted. Blocked messages have a transaction of their own, as the order
        of locks demands. It is the first, because those that the other admits would no longer be blocked.
        """
        effective = [False] * len(rows)
        for is_blocked in (True, False):
            indexes = [index for index, row in enumerate(rows) if (row.state is MessageState.BLOCKED) is is_blocked]
            for index in await self._end_some(statement, rows, indexes, change) if indexes else ():
                effective[index] = True
        return effective

    async def _end_some(
        self, statement: str, rows: Sequence[UnlockedRow], indexes: Sequence[int], change: Change
    ) -> list[int]:
        """End the rows with these indexes in one transaction, or each alone if a group is in use. Return which ended."""
        try:
            work = partial(end_rows, statement=statement, rows=rows, indexes=indexes, change=change)
            ended, admitted = await self._database.transaction(work)
        except GroupInUse:
            if len(indexes) == 1:
                return []
            return [one for index in indexes for one in await self._end_some(statement, rows, [index], change)]
        self._announce(admitted)
        return ended

    def _announce(self, admitted: Sequence[Admitted]) -> None:
        """Tell the listener about messages that were admitted, after the commit."""
        if admitted:
            self.on_admitted(admitted)

    async def redrive(self, redrives: Sequence[Redrive]) -> list[bool]:
        """See `MaintenanceStore`."""
        expected = [replace(redrive.row, state=MessageState.DEAD_LETTERED) for redrive in redrives]

        async def work(session: SqlSession) -> tuple[list[bool], list[Admitted]]:
            queues = await _served_queues(
                session, {queue for redrive in redrives for queue in (redrive.row.queue_id, redrive.to_queue_id)}
            )
            if not all(redrive.to_queue_id in queues for redrive in redrives):
                raise QueueGone
            locked = await lock_rows(session, "unlocked_for_update", expected)
            effective = [
                is_locked and redrive.row.queue_id in queues
                for redrive, is_locked in zip(redrives, locked, strict=True)
            ]
            groups: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
            for redrive in compress(redrives, effective):
                groups[redrive.row.queue_id, redrive.to_queue_id].append(redrive.row.sequence_number)
            for (from_queue_id, to_queue_id), numbers in groups.items():
                for queue_id, sign in ((from_queue_id, -1), (to_queue_id, 1)) if from_queue_id != to_queue_id else ():
                    name = queues[queue_id].name
                    await session.change("count_moved", numbers=numbers, queue_id=queue_id, queue=name, sign=sign)
                await session.change("redrive", numbers=numbers, to_queue_id=to_queue_id)
            entering = [
                number
                for (_, to_queue_id), numbers in groups.items()
                if queues[to_queue_id].has_groups
                for number in numbers
            ]
            admitted = (await enter(session, entering))[1] if entering else []
            redriven = [redrive.row.sequence_number for redrive in compress(redrives, effective)]
            await record(session, Event.REDRIVEN, redriven)
            await record_admitted(session, admitted, entering)
            return effective, admitted

        with unavailable_when_closed:
            effective, admitted = await self._database.transaction(work)
        self._announce(admitted)
        return effective

    async def edit(self, edit: Edit) -> Message | None:
        """See `MaintenanceStore`."""

        async def work(session: SqlSession) -> tuple[Message | None, list[Admitted]]:
            now = await lock_unchanged(session, edit.expected)
            if now is None:
                return None, []
            admitted = await edit_message(session, edit, now)
            await record(session, Event.EDITED, [edit.expected.sequence_number])
            await record_admitted(session, admitted, [edit.expected.sequence_number])
            return await read_message(session, edit.expected.queue_id, edit.expected.sequence_number), admitted

        with unavailable_when_closed:
            edited, admitted = await self._database.transaction(work)
        self._announce(admitted)
        return edited

    async def cancel(self, expected: Message, queue: Queue) -> bool:
        """See `MaintenanceStore`."""
        row = UnlockedRow(expected.sequence_number, queue.id, expected.state)
        withdrawal = Withdrawal(row, queue.name, Outcome.CANCELLED, queue.settings.archive_retention)

        async def work(session: SqlSession) -> tuple[bool, list[Admitted]]:
            if await lock_unchanged(session, expected) is None:
                return False, []
            groups = await left_groups(session, [expected.sequence_number])
            await withdraw(session, [withdrawal])
            admitted = await admit(session, groups)
            await record_admitted(session, admitted)
            return True, admitted

        with unavailable_when_closed:
            is_cancelled, admitted = await self._database.transaction(work)
        self._announce(admitted)
        return is_cancelled

    async def recover(self, recovery: Recovery) -> Recovered:
        """See `RecoverStore`."""
        return await self._database.transaction(partial(recover, recovery=recovery))

    async def promote(self, limit: int) -> Promoted:
        """See `MaintenanceStore`."""

        async def work(session: SqlSession, *, with_groups: bool) -> tuple[Promoted, list[Admitted]]:
            found_rows = await session.fetch("due", limit=limit)
            due = [row for row in found_rows if with_groups or row[2] is None]
            if due:
                await session.change("promote", numbers=[number for number, *_ in due])
            entering = [number for number, _, group_id in due if group_id is not None]
            blocked, admitted = await enter(session, entering) if entering else (set[int](), [])
            await record(session, Event.DUE, [number for number, *_ in due])
            await record_admitted(session, admitted, entering)
            next_due = await session.fetch("until_next_due")
            by_queue: defaultdict[int, list[int]] = defaultdict(list)
            for number, queue_id, _ in due:
                if number not in blocked:
                    by_queue[queue_id].append(number)
            return Promoted(by_queue, max(0, next_due[0][0]) if next_due else None), admitted

        try:
            promoted, admitted = await self._database.transaction(partial(work, with_groups=True))
        except GroupInUse:
            # The others need not wait until the group is free.
            promoted, admitted = await self._database.transaction(partial(work, with_groups=False))
        self._announce(admitted)
        return promoted

    async def admit_after_changes(self, limit: int) -> bool:
        """See `MaintenanceStore`."""
        is_done = True
        for queue_id, after, version, is_unlimited in await self._database.fetch("queues_to_admit"):
            run = release_blocked if is_unlimited else admit_after
            work = partial(run, queue_id=queue_id, after=after, version=version, limit=limit)
            with suppress(GroupInUse):
                admitted, is_last = await self._database.transaction(work)
                self._announce(admitted)
                is_done = is_done and is_last
        return is_done

    async def delete_expired(self, limit: int) -> int:
        """See `MaintenanceStore`. Deletes at most `limit` rows of each kind."""
        removed = 0
        for name in DELETIONS:
            removed += await self._database.change(name, limit=limit)
        removed += await delete_expired_events(self._database, limit)
        for (queue_id,) in await self._database.fetch("orphaned_queues"):
            removed += await self._purge_orphans(queue_id, limit)
        await self._database.change("delete_expired_deleted_queues", retention=DELETED_QUEUE_KEEP)
        return removed

    async def _purge_orphans(self, queue_id: int, limit: int) -> int:
        """Archive messages of a deleted queue, locked ones too. Return how many, or None if the queue still exists."""

        async def work(session: SqlSession) -> int:
            if await session.fetch("queue_by_id", id=queue_id):
                return 0
            found_rows = await session.fetch("orphans", queue_id=queue_id, limit=limit)
            count = count_that_fit((body_bytes for _, body_bytes in found_rows), DEFAULT_BATCH_LIMITS.max_body_bytes)
            if count:
                deleted_queue = await last_known(session, queue_id)
                numbers = [number for number, _ in found_rows[:count]]
                await archive_and_delete(
                    session, numbers, deleted_queue.name, Outcome.PURGED, deleted_queue.archive_retention
                )
            return count

        return await self._database.transaction(work)


def _no_admission_listener(_admitted: Sequence[Admitted]) -> None:
    """Do nothing: no listener is set."""


def _no_listener(_moves: Sequence[Move], _effective: Sequence[bool]) -> None:
    """Do nothing: no listener is set."""


async def _served_queues(session: SqlSession, queue_ids: Iterable[int]) -> Mapping[int, Queue]:
    """Return the queues that exist and that this version knows, by id."""
    found_rows = [row for queue_id in queue_ids for row in await session.fetch("queue_by_id", id=queue_id)]
    return {queue.id: queue for queue in map(rows.queue, found_rows) if queue.feature_level <= FEATURE_LEVEL}
