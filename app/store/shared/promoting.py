"""Promotions within a transaction: scheduled messages that are due become available or enter their groups."""

from collections import defaultdict
from collections.abc import Sequence

from app.broker.ports.maintaining import Promoted
from app.broker.ports.settling import Admitted
from app.domain.history import Event
from app.store.shared.database import SqlSession
from app.store.shared.groups import GroupKey, enter, write_groups
from app.store.shared.held_groups import AnyGroup
from app.store.shared.history import record, record_admitted
from app.store.shared.rows import Row


async def due_messages(session: SqlSession, limit: int, held: Sequence[GroupKey] = ()) -> Sequence[Row]:
    """Return the number, the queue and the group of messages that are due, but of none of these groups."""
    if held:
        return await session.fetch("due_elsewhere", limit=limit, groups=write_groups(held))
    return await session.fetch("due", limit=limit)


async def promote(
    session: SqlSession, limit: int, held: Sequence[GroupKey] = (), only: AnyGroup | None = None
) -> tuple[Promoted, list[Admitted]]:
    """Promote due messages, of all groups but these or of one. Return them, and all messages that were admitted.

    Raises `GroupInUse`.
    """
    due = [row for row in await due_messages(session, limit, held) if only in (None, row[1:])]
    numbers = [number for number, *_ in due]
    if due:
        await session.change("promote", numbers=numbers)
    entering = [number for number, _, group_id in due if group_id is not None]
    blocked, admitted = await enter(session, entering) if entering else (set[int](), [])
    await record(session, Event.DUE, numbers)
    await record_admitted(session, admitted, entering)
    next_due = await session.fetch("until_next_due")
    by_queue: defaultdict[int, list[int]] = defaultdict(list)
    for number, queue_id, _ in due:
        if number not in blocked:
            by_queue[queue_id].append(number)
    return Promoted(by_queue, max(0, next_due[0][0]) if next_due else None), admitted


def merged(parts: Sequence[Promoted]) -> Promoted:
    """Return several promotions as one. The last one knows when the next message is due."""
    by_queue: defaultdict[int, list[int]] = defaultdict(list)
    for part in parts:
        for queue_id, numbers in part.by_queue.items():
            by_queue[queue_id] += numbers
    return Promoted(by_queue, parts[-1].next_due_in if parts else None)
