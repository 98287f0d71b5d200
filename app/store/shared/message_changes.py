"""Changes of unlocked messages within a transaction: lock rows under their fences, then end, archive or edit them."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from itertools import compress
from typing import TypeAlias

from app.broker.ports.maintaining import Edit, UnlockedRow, Withdrawal
from app.broker.ports.settling import Admitted
from app.domain.instant import Duration, Instant
from app.domain.message import Message, MessageState
from app.domain.settlement import Outcome
from app.store.shared.archive import archive_and_delete
from app.store.shared.database import SqlSession
from app.store.shared.groups import admit, enter, left_groups
from app.store.shared.history import record_admitted, record_withdrawn
from app.store.shared.json_columns import write_properties
from app.store.shared.synchronous_sends import end_synchronous_sends

Change: TypeAlias = Callable[[SqlSession, Sequence[int]], Awaitable[None]]
"""Changes the rows with these indexes, which the transaction has locked."""


async def end_rows(
    session: SqlSession, statement: str, rows: Sequence[UnlockedRow], indexes: Sequence[int], change: Change
) -> tuple[list[int], list[Admitted]]:
    """Lock the rows with these indexes that pass the fences of the statement, and change them. Return their indexes."""
    effective = await lock_rows(session, statement, [rows[index] for index in indexes])
    locked = list(compress(indexes, effective))
    if not locked:
        return [], []
    groups = await left_groups(session, [rows[index].sequence_number for index in locked])
    await change(session, locked)
    admitted = await admit(session, groups)
    await record_admitted(session, admitted)
    return locked, admitted


async def lock_rows(session: SqlSession, statement: str, expected: Sequence[UnlockedRow]) -> list[bool]:
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


async def lock_unchanged(session: SqlSession, expected: Message) -> Instant | None:
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


async def withdraw(session: SqlSession, withdrawals: Sequence[Withdrawal]) -> None:
    """Archive, delete and record rows that this transaction has locked."""
    groups: defaultdict[tuple[str, Outcome, Duration], list[int]] = defaultdict(list)
    for withdrawal in withdrawals:
        groups[withdrawal.queue, withdrawal.outcome, withdrawal.retention].append(withdrawal.row.sequence_number)
    for (queue, outcome, retention), numbers in groups.items():
        await end_messages(session, numbers, queue, outcome, retention)
    await record_withdrawn(session, withdrawals)


async def end_messages(
    session: SqlSession, numbers: Sequence[int], queue: str, outcome: Outcome, retention: Duration
) -> None:
    """End rows that this transaction has locked. Those whose senders wait for a settlement leave nothing behind."""
    stored = await end_synchronous_sends(session, numbers, outcome)
    if stored:
        await archive_and_delete(session, stored, queue, outcome, retention)


async def edit_message(session: SqlSession, edit: Edit, now: Instant) -> list[Admitted]:
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
