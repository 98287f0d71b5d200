"""The statements of background loops and administrators that change messages, the same for every store."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress
from typing import TypeVar

from app.broker.ports.maintaining import Edit, MoveStep, Promoted, Redrive, UnlockedRow, Withdrawal
from app.broker.ports.receiving import Recovered
from app.broker.ports.sending import QueueGone
from app.broker.ports.settling import Admitted
from app.domain.archive import DEFAULT_BATCH_LIMITS
from app.domain.delivery import Recovery
from app.domain.history import Event
from app.domain.instant import DAY, Duration
from app.domain.message import Message, MessageState, Receipt
from app.domain.queue import Queue
from app.domain.settlement import LockedMessage, Move, Outcome, Removal
from app.domain.weight import count_that_fit
from app.domain.work_unit import WorkUnit
from app.store.shared.archive import ArchiveRecords
from app.store.shared.attempts import AttemptRecords
from app.store.shared.database import Database, GroupInUse, SqlSession, Work
from app.store.shared.engine import Session, UnitEffects
from app.store.shared.explanation_reads import ExplanationReads
from app.store.shared.groups import GroupKey, admit, admit_after, left_groups, release_blocked, write_groups
from app.store.shared.held_groups import HeldGroups, change_apart
from app.store.shared.history import HistoryReads, delete_expired_events, record, record_admitted, record_restored
from app.store.shared.keys import KeyRecords, SessionRecords
from app.store.shared.message_changes import (
    Change,
    edit_message,
    end_messages,
    end_rows,
    lock_unchanged,
    withdraw,
)
from app.store.shared.message_reads import MessageReads, read_message
from app.store.shared.move_tasks import MoveTaskRecords, advance
from app.store.shared.promoting import due_messages, merged, promote
from app.store.shared.queues import QueueRecords, last_known
from app.store.shared.recovering import recover
from app.store.shared.redriving import redrive
from app.store.shared.restoring import take_restorable
from app.store.shared.rows import IS_OFFERED, STATES, locked_message
from app.store.shared.shared_bodies import SharedBodyRecords
from app.store.shared.states import StateRecords
from app.store.shared.synchronous_sends import SynchronousSendRecords
from app.store.shared.topics import TopicRecords
from app.store.shared.transactions import TransactionRecords

Result = TypeVar("Result")

DELETED_QUEUE_KEEP: Duration = DAY
"""How long the record of a deleted queue is kept at least: longer than any statement that still stores into it."""

SKIPPED_QUEUE_IDS = 10_000
"""More queues than are created between a backup and its restore. Ids have 31 bits."""

DELETIONS = (
    "delete_expired_settlements",
    "delete_expired_attempts",
    "delete_expired_recent_ids",
    "delete_expired_restorable",
    "delete_expired_transactions",
    "delete_expired_offers",
)
"""The statements that delete rows past their time."""


class MessageRecords(MessageReads, ExplanationReads, HistoryReads, SynchronousSendRecords, AttemptRecords[Session]):
    """`MaintainingStore`. A store is its own engine, and adds the verbs that run for every message."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        SynchronousSendRecords.__init__(self, database)
        self.on_moved: Callable[[Sequence[Move], Sequence[bool]], None] = _no_listener
        self.on_admitted: Callable[[Sequence[Admitted]], None] = _no_admission_listener
        self._held_groups = HeldGroups()
        self._groups_of_locks = HeldGroups()
        self.states = StateRecords(database)
        self._shared_bodies = SharedBodyRecords(database)
        self.archive = ArchiveRecords(database)
        self.queues = QueueRecords(database)
        self.moves = MoveTaskRecords(database)
        self.keys = KeyRecords(database)
        self.sessions = SessionRecords(database)
        self.topics = TopicRecords(database)
        self.transactions = TransactionRecords(database, self)

    @property
    def engine(self) -> str:
        """See `StoreDatabase`."""
        return self.dialect.name

    async def restore(self, queue: Queue, numbers: Sequence[int]) -> list[Receipt]:
        """See `MaintainingStore`."""

        async def work(session: Session) -> tuple[WorkUnit, UnitEffects]:
            unit = WorkUnit(drafts=await take_restorable(session, queue, numbers))
            effects = await self.execute_within(session, unit)
            await record_restored(session, effects.receipts, effects.admitted)
            return unit, effects

        unit, effects = await self.run(work)
        self.on_executed(unit, effects)
        return [*effects.receipts]

    async def remove_locked(self, queue_id: int, removals: Sequence[Removal]) -> list[bool]:
        """See `MaintainingStore`."""

        async def work(session: Session) -> tuple[list[bool], list[Admitted]]:
            removed, admitted = await self.remove_within(session, removals)
            # Last, so that no lock of theirs is held while the transaction waits for a group.
            if numbers := [removal.token.sequence_number for removal in compress(removals, removed)]:
                await session.change("add_restorable", numbers=numbers)
                await session.change("count_lock_purge", id=queue_id)
            return removed, admitted

        removed, admitted = await self.run(work)
        self._announce(admitted)
        return removed

    async def expired_messages(self, limit: int) -> list[UnlockedRow]:
        """See `MaintainingStore`. Leaves out groups that the last pass found held."""
        if held := self._held_groups.take():
            found_rows = await self._database.fetch("expired_elsewhere", limit=limit, groups=write_groups(held))
        else:
            found_rows = await self._database.fetch("expired_messages", limit=limit)
        return [
            UnlockedRow(number, queue_id, STATES[state], home_state == IS_OFFERED)
            for number, queue_id, state, home_state in found_rows
        ]

    async def expired_locks(self, limit: int) -> list[LockedMessage]:
        """See `SettlingStore`. Leaves out groups that the last pass found held."""
        if held := self._groups_of_locks.take():
            found_rows = await self._database.fetch("expired_locks_elsewhere", limit=limit, groups=write_groups(held))
        else:
            found_rows = await self._database.fetch("expired_locks", limit=limit)
        return [locked_message(row) for row in found_rows]

    async def withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """See `MaintainingStore`."""
        return await self._withdraw_with("unlocked_for_update", withdrawals)

    async def expire(self, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        """See `MaintainingStore`."""
        return await self._withdraw_with("expired_for_update", withdrawals)

    async def _withdraw_with(self, statement: str, withdrawals: Sequence[Withdrawal]) -> list[bool]:
        async def change(session: SqlSession, locked: Sequence[int]) -> None:
            await withdraw(session, [withdrawals[index] for index in locked])

        return await self._end(statement, [withdrawal.row for withdrawal in withdrawals], change)

    async def dead_letter(self, rows: Sequence[UnlockedRow], reason: str) -> list[bool]:
        """See `MaintainingStore`."""

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
    ) -> set[int]:
        """End the rows with these indexes, but those of held groups. Return the indexes of the rows that ended."""

        async def end(chosen: Sequence[int]) -> list[int]:
            work = partial(end_rows, statement=statement, rows=rows, indexes=chosen, change=change)
            ended, admitted = await self._database.transaction(work)
            self._announce(admitted)
            return ended

        messages = {index: (rows[index].queue_id, rows[index].sequence_number) for index in indexes}
        return await change_apart(self._database, messages, end, self._held_groups)

    def _announce(self, admitted: Sequence[Admitted]) -> None:
        """Tell the listener about messages that were admitted, after the commit."""
        if admitted:
            self.on_admitted(admitted)

    async def redrive(self, redrives: Sequence[Redrive]) -> list[bool]:
        """See `MaintainingStore`."""
        moved: set[int] = set()

        async def move(indexes: Sequence[int]) -> set[int]:
            work = partial(redrive, redrives=[redrives[index] for index in indexes])
            try:
                effective, admitted = await self._database.transaction(work)
            except QueueGone:
                if not moved:
                    raise
                return moved
            self._announce(admitted)
            moved.update(compress(indexes, effective))
            return moved

        messages = {index: (one.to_queue_id, one.row.sequence_number) for index, one in enumerate(redrives)}
        await change_apart(self._database, messages, move, HeldGroups())
        return [index in moved for index in range(len(redrives))]

    async def advance_move(self, step: MoveStep) -> list[bool] | None:
        """See `MaintainingStore`."""
        moved, admitted = await self._database.transaction(partial(advance, step=step))
        self._announce(admitted)
        return moved

    async def edit(self, edit: Edit) -> Message | None:
        """See `MaintainingStore`."""

        async def work(session: SqlSession) -> tuple[Message | None, list[Admitted]]:
            now = await lock_unchanged(session, edit.expected)
            if now is None:
                return None, []
            admitted = await edit_message(session, edit, now)
            await record(session, Event.EDITED, [edit.expected.sequence_number])
            await record_admitted(session, admitted, [edit.expected.sequence_number])
            return await read_message(session, edit.expected.queue_id, edit.expected.sequence_number), admitted

        edited, admitted = await self._database.transaction(work)
        self._announce(admitted)
        return edited

    async def cancel(self, expected: Message, queue: Queue) -> bool:
        """See `MaintainingStore`."""
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

        is_cancelled, admitted = await self._database.transaction(work)
        self._announce(admitted)
        return is_cancelled

    async def recover(self, recovery: Recovery) -> Recovered:
        """See `ReceivingStore`."""
        return await self._database.transaction(partial(recover, recovery=recovery))

    async def promote(self, limit: int) -> Promoted:
        """See `MaintainingStore`."""
        try:
            return await self._promote(partial(promote, limit=limit))
        except GroupInUse:
            return await self._promote_apart(limit)

    async def _promote_apart(self, limit: int) -> Promoted:
        """Promote each group alone, because the others need not wait until one is free.

        Held groups may fill a page, so others follow until messages become available.
        """
        held: list[GroupKey] = []
        parts: list[Promoted] = []
        is_full = True
        while is_full and not any(part.by_queue for part in parts):
            due = await due_messages(self._database, limit, tuple(held))
            is_full = len(due) == limit
            for queue_id, group_id in dict.fromkeys((queue_id, group_id) for _, queue_id, group_id in due):
                work = partial(promote, limit=limit, held=tuple(held), only=(queue_id, group_id))
                try:
                    parts.append(await self._promote(work))
                except GroupInUse:
                    held.append((queue_id, group_id or ""))
        return merged(parts)

    async def _promote(self, work: Work[tuple[Promoted, list[Admitted]]]) -> Promoted:
        promoted, admitted = await self._database.transaction(work)
        self._announce(admitted)
        return promoted

    async def admit_after_changes(self, limit: int) -> bool:
        """See `MaintainingStore`."""
        is_done = True
        for queue_id, after, version, is_unlimited in await self._database.fetch("queues_to_admit"):
            run = release_blocked if is_unlimited else admit_after
            work = partial(run, queue_id=queue_id, after=after, version=version, limit=limit)
            with suppress(GroupInUse):
                admitted, is_last = await self._database.transaction(work)
                self._announce(admitted)
                is_done = is_done and is_last
        return is_done

    async def skip_numbers(self, count: int) -> int:
        """See `StoreDatabase`."""
        first = await self.highest_number() + count + 1
        await _continue_at(self._database, first)
        return first

    async def continue_after(self, number: int, count: int) -> int | None:
        """See `StoreDatabase`. MariaDB commits before it changes a counter, so two callers may both make the change. That
        does no harm: MariaDB never sets a counter back to a number that a stored message has."""
        first = number + count + 1

        async def work(session: SqlSession) -> int | None:
            await session.fetch("serialize_queue_creation")
            ((highest,),) = await session.fetch("highest_number")
            if highest >= number:
                return None
            await _continue_at(session, first)
            return first

        return await self._database.transaction(work)

    async def delete_expired(self, limit: int) -> int:
        """See `MaintainingStore`. Deletes at most `limit` rows of each kind."""
        removed = 0
        for name in DELETIONS:
            removed += await self._database.change(name, limit=limit)
        removed += await delete_expired_events(self._database, limit)
        removed += await self._shared_bodies.delete_unreferenced(limit)
        for (queue_id,) in await self._database.fetch("orphaned_queues"):
            removed += await self._purge_orphans(queue_id, limit)
        await self._database.change("delete_expired_deleted_queues", retention=DELETED_QUEUE_KEEP)
        return removed

    async def _purge_orphans(self, queue_id: int, limit: int) -> int:
        """Archive messages of a deleted queue, locked ones too. Return how many: 0 if the queue still exists."""

        async def work(session: SqlSession) -> int:
            if await session.fetch("queue_by_id", id=queue_id):
                return 0
            found_rows = await session.fetch("orphans", queue_id=queue_id, limit=limit)
            count = count_that_fit((body_bytes for _, body_bytes in found_rows), DEFAULT_BATCH_LIMITS.max_body_bytes)
            if count:
                deleted_queue = await last_known(session, queue_id)
                numbers = [number for number, _ in found_rows[:count]]
                await end_messages(
                    session, numbers, deleted_queue.name, Outcome.PURGED, deleted_queue.archive_retention
                )
            return count

        return await self._database.transaction(work)


def _no_admission_listener(_admitted: Sequence[Admitted]) -> None:
    """Do nothing: no listener is set."""


def _no_listener(_moves: Sequence[Move], _effective: Sequence[bool]) -> None:
    """Do nothing: no listener is set."""


async def _continue_at(session: SqlSession, first: int) -> None:
    """Give out no lower sequence number, and leave out ids of queues."""
    ((queue_id,),) = await session.fetch("highest_queue_id")
    await session.change("continue_numbers_at", first=first)
    await session.change("continue_queue_ids_at", first=int(queue_id) + SKIPPED_QUEUE_IDS)
