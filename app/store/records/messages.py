"""The statements of background loops and administrators that change messages, the same for every store."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import TypeAlias

from app.broker.ports import Admitted, Edit, Promoted, QueueGone, Recovered, Redrive, UnlockedRow, Withdrawal
from app.domain.archive import DEFAULT_BATCH_LIMITS
from app.domain.delivery import Recovery
from app.domain.instant import DAY, Duration, Instant
from app.domain.message import Message, MessageState
from app.domain.queue import FEATURE_LEVEL, Queue
from app.domain.settlement import RESTORABLE_OUTCOMES, Move, Outcome
from app.domain.weight import count_that_fit
from app.store.records import rows
from app.store.records.database import Database, GroupInUse, SqlSession, unavailable_when_closed
from app.store.records.explanation_reads import ExplanationReads
from app.store.records.groups import admit, enter, left_groups
from app.store.records.json_columns import write_properties
from app.store.records.message_reads import MessageReads, read_message
from app.store.records.queues import last_known
from app.store.records.recovery import recover

DELETED_QUEUE_KEEP: Duration = DAY
"""How long the record of a deleted queue is kept at least: longer than any statement that still stores into it."""


Change: TypeAlias = Callable[[SqlSession, Sequence[int]], Awaitable[None]]
"""Changes the rows with these indexes, which the transaction has locked."""

DELETIONS = (
    "delete_expired_settlements",
    "delete_expired_attempts",
    "delete_expired_recent_ids",
    "delete_expired_restorable",
)
"""The statements that delete rows past their time."""


class MessageRecords(MessageReads, ExplanationReads):
    """`MaintenanceStore`. A store adds the verbs that run per message."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.on_moved: Callable[[Sequence[Move], Sequence[bool]], None] = _no_listener
        self.on_admitted: Callable[[Sequence[Admitted]], None] = _no_admission_listener

    async def withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """See `MaintenanceStore`."""
        return await self._withdraw_with("unlocked_for_update", withdrawals)

    async def expire(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """See `MaintenanceStore`."""
        return await self._withdraw_with("expired_for_update", withdrawals)

    async def _withdraw_with(self, statement: str, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        async def change(session: SqlSession, locked: Sequence[int]) -> None:
            await _withdraw(session, [withdrawals[index] for index in locked])

        return await self._end(statement, [withdrawal.row for withdrawal in withdrawals], change)

    async def dead_letter(self, rows: Sequence[UnlockedRow], reason: str) -> list[bool]:
        """See `MaintenanceStore`."""

        async def change(session: SqlSession, locked: Sequence[int]) -> None:
            numbers = [rows[index].sequence_number for index in locked]
            await session.change("dead_letter", numbers=numbers, reason=reason)

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
            work = partial(_end_rows, statement=statement, rows=rows, indexes=indexes, change=change)
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
            locked = await _lock_rows(session, "unlocked_for_update", expected)
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
            return effective, (await enter(session, entering))[1] if entering else []

        with unavailable_when_closed:
            effective, admitted = await self._database.transaction(work)
        self._announce(admitted)
        return effective

    async def edit(self, edit: Edit) -> Message | None:
        """See `MaintenanceStore`."""

        async def work(session: SqlSession) -> tuple[Message | None, list[Admitted]]:
            now = await _lock_unchanged(session, edit.expected)
            if now is None:
                return None, []
            admitted = await _edit(session, edit, now)
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
            if await _lock_unchanged(session, expected) is None:
                return False, []
            groups = await left_groups(session, [expected.sequence_number])
            await _withdraw(session, [withdrawal])
            return True, await admit(session, groups)

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
            run = _release_blocked if is_unlimited else _admit_after
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
                await _archive_and_delete(
                    session, numbers, deleted_queue.name, Outcome.PURGED, deleted_queue.archive_retention
                )
            return count

        return await self._database.transaction(work)


def _no_admission_listener(_admitted: Sequence[Admitted]) -> None:
    """Do nothing: no listener is set."""


async def _end_rows(
    session: SqlSession, statement: str, rows: Sequence[UnlockedRow], indexes: Sequence[int], change: Change
) -> tuple[list[int], list[Admitted]]:
    """Lock the rows with these indexes that pass the fences of the statement, and change them. Return their indexes."""
    effective = await _lock_rows(session, statement, [rows[index] for index in indexes])
    locked = list(compress(indexes, effective))
    if not locked:
        return [], []
    groups = await left_groups(session, [rows[index].sequence_number for index in locked])
    await change(session, locked)
    return locked, await admit(session, groups)


async def _admit_after(
    session: SqlSession, queue_id: int, after: str, version: int, limit: int
) -> tuple[list[Admitted], bool]:
    """Admit blocked messages of the groups of a queue that follow a group. Return whether no group is left."""
    found_rows = await session.fetch("blocked_groups", queue_id=queue_id, after=after, limit=limit)
    groups = [group_id for (group_id,) in found_rows]
    is_last = len(groups) < limit
    admitted = await admit(session, [(queue_id, group_id) for group_id in groups])
    last = None if is_last else groups[-1]
    await session.change("continue_after", id=queue_id, after=after, version=version, admit_after=last)
    return admitted, is_last


async def _release_blocked(
    session: SqlSession, queue_id: int, after: str, version: int, limit: int
) -> tuple[list[Admitted], bool]:
    """Make blocked messages of a queue without a limit available. Return whether none is left.

    They enter no group. Receivers find them when they poll.
    """
    found_rows = await session.fetch("blocked_in_queue", queue_id=queue_id, limit=limit)
    numbers = [number for (number,) in found_rows]
    if numbers:
        await session.change("release_blocked", numbers=numbers)
    is_last = len(numbers) < limit
    last = None if is_last else after
    await session.change("continue_after", id=queue_id, after=after, version=version, admit_after=last)
    return [], is_last


def _no_listener(_moves: Sequence[Move], _effective: Sequence[bool]) -> None:
    """Do nothing: no listener is set."""


async def _served_queues(session: SqlSession, queue_ids: Iterable[int]) -> Mapping[int, Queue]:
    """Return the queues that exist and that this version knows, by id."""
    found_rows = [row for queue_id in queue_ids for row in await session.fetch("queue_by_id", id=queue_id)]
    return {queue.id: queue for queue in map(rows.queue, found_rows) if queue.feature_level <= FEATURE_LEVEL}


async def _lock_rows(session: SqlSession, statement: str, expected: Sequence[UnlockedRow]) -> list[bool]:
    """Lock the rows that pass the fences of this statement. Return for each entry whether it was locked; of two equal
    entries, only the first is."""
    groups: defaultdict[tuple[int, MessageState], list[int]] = defaultdict(list)
    for row in expected:
        groups[row.queue_id, row.state].append(row.sequence_number)
    locked: set[UnlockedRow] = set()
    for (queue_id, state), numbers in groups.items():
        found_rows = await session.fetch(statement, numbers=numbers, queue_id=queue_id, state=state.value)
        locked.update(UnlockedRow(number, queue_id, state) for (number,) in found_rows)
    effective: list[bool] = []
    for row in expected:
        effective.append(row in locked)
        locked.discard(row)
    return effective


async def _lock_unchanged(session: SqlSession, expected: Message) -> Instant | None:
    """Lock the message if it is unlocked and still as `expected`. Return the store's clock, or None if it changed."""
    locked = await session.fetch(
        "unchanged_for_update",
        sequence_number=expected.sequence_number,
        queue_id=expected.queue_id,
        state=expected.state.value,
        priority=expected.priority,
        available_at=expected.available_at,
        delivery_count=expected.delivery_count,
        failure_count=expected.failure_count,
        lock_generation=expected.lock_generation,
        properties=expected.envelope.properties.decode(),
    )
    return locked[0][0] if locked else None


async def _withdraw(session: SqlSession, withdrawals: Sequence[Withdrawal]) -> None:
    """Archive and delete rows that this transaction has locked."""
    groups: defaultdict[tuple[str, Outcome, Duration], list[int]] = defaultdict(list)
    for withdrawal in withdrawals:
        groups[withdrawal.queue, withdrawal.outcome, withdrawal.retention].append(withdrawal.row.sequence_number)
    for (queue, outcome, retention), numbers in groups.items():
        await _archive_and_delete(session, numbers, queue, outcome, retention)


async def _archive_and_delete(
    session: SqlSession, numbers: Sequence[int], queue: str, outcome: Outcome, retention: Duration
) -> None:
    """Archive rows that this transaction has locked, or count them if the queue keeps no archive. Then delete them."""
    if retention:
        await session.change(
            "archive_messages", numbers=numbers, queue=queue, outcome=outcome.value, retention=retention
        )
        await session.change("add_unsealed", numbers=numbers)
        if outcome in RESTORABLE_OUTCOMES:
            await session.change("add_restorable", numbers=numbers)
    else:
        await session.change("count_unarchived", numbers=numbers, queue=queue)
    await session.change("delete_messages", numbers=numbers)


async def _edit(session: SqlSession, edit: Edit, now: Instant) -> list[Admitted]:
    """Change a row that this transaction has locked. Return the messages of its group that were admitted."""
    number = edit.expected.sequence_number
    due = edit.available_at if edit.delay is None else now + edit.delay
    admitted = await _reschedule(session, edit.expected, due, now) if due is not None else []
    if edit.priority is not None:
        await session.change("change_priority", sequence_number=number, priority=edit.priority)
    if edit.properties is not None:
        await session.change("change_properties", sequence_number=number, properties=write_properties(edit.properties))
    return admitted


async def _reschedule(session: SqlSession, expected: Message, due: Instant, now: Instant) -> list[Admitted]:
    """Set the due time of a row that this transaction has locked. Return the messages of its group that were admitted.

    A due time in the future makes it scheduled, and its group goes on without it. Otherwise a scheduled message becomes
    available or enters its group. An available or blocked message stays what it is.
    """
    number = expected.sequence_number
    groups = await left_groups(session, [number]) if due > now else []
    is_unscheduled = expected.state is MessageState.SCHEDULED and due <= now
    due_state = MessageState.AVAILABLE if is_unscheduled else expected.state
    await session.change(
        "reschedule",
        sequence_number=number,
        state=MessageState.SCHEDULED.value if due > now else due_state.value,
        is_scheduled=int(due > now),
        available_at=max(due, now),
    )
    return (await enter(session, [number]))[1] if is_unscheduled else await admit(session, groups)
