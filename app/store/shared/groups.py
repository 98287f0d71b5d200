"""Groups: blocked messages become available when other messages leave their group.

A message of a group is in flight while it is available or locked: it has a place in the group. The queue limits the places
of each group (`group_in_flight`). A message that enters a group is blocked at first. Every transaction that lets messages
enter or leave groups ends with `admit`, which gives free places to the first blocked messages. No counter is stored:
`admit` counts the messages in flight.

Locks are taken in one order: messages that are in flight or were just stored, then groups, then blocked messages. So
`admit` waits for no transaction that waits for a group. A transaction that locks messages that are already blocked must
lock no group afterwards. It has no reason to, because a blocked message has no place to leave.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias
from zlib import crc32

import msgspec
from msgspec.structs import replace

from app.broker.ports.settling import Admitted
from app.domain.history import Event
from app.domain.instant import Instant
from app.domain.message import Draft, MessageState, Receipt
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import Move, Removal
from app.store.shared.database import GroupInUse, LockWaitTimeout, SqlSession
from app.store.shared.history import record, record_admitted
from app.store.shared.message_ids import MessageIdKey, message_id_key

GroupKey: TypeAlias = tuple[int, str]
"""A group: the id of its queue, and its `group_id`."""

BUCKETS = 1 << 14
"""Rows of `group_lock`. Groups with the same row wait for each other, and every server must choose the same row."""

MAX_ADMITTED = 1000
"""Messages of one group that a statement admits. The next statement admits the rest."""

_encode = msgspec.json.Encoder().encode


class Head(msgspec.Struct, frozen=True):
    """A row of the statement `admissible`: one of the first blocked messages of a group, and its free places."""

    sequence_number: int
    queue_id: int
    group_id: str
    priority: int
    room: int
    now: Instant


async def admit(session: SqlSession, groups: Iterable[GroupKey]) -> list[Admitted]:
    """Make the first blocked messages of these groups available, as many as their queues allow. Return them.

    The transaction holds the groups until it ends. It sees every message that earlier holders let in or out, because
    each statement sees what was committed before it. A message that another transaction has just taken away is passed
    over. Raises `GroupInUse`.
    """
    waiting = sorted(set(groups))
    if not waiting:
        return []
    try:
        return await _admit(session, waiting)
    except LockWaitTimeout as error:
        raise GroupInUse from error


async def hold(session: SqlSession, groups: Iterable[GroupKey]) -> None:
    """Hold these groups until the transaction ends: no other one admits their messages. Raises `GroupInUse`."""
    buckets = sorted(set(map(bucket_of, groups)))
    try:
        if buckets:
            await _lock(session, buckets)
    except LockWaitTimeout as error:
        raise GroupInUse from error


async def heads_with_room(session: SqlSession, groups: Iterable[GroupKey]) -> Mapping[GroupKey, int]:
    """Return the first blocked message of each of these groups that has a free place."""
    waiting = sorted(set(groups))
    if not waiting:
        return {}
    heads = [Head(*row) for row in await session.fetch("admissible", groups=write_groups(waiting), limit=MAX_ADMITTED)]
    first: dict[GroupKey, int] = {}
    for head in heads:
        group = head.queue_id, head.group_id
        first[group] = min(head.sequence_number, first.get(group, head.sequence_number))
    return first


async def _admit(session: SqlSession, waiting: list[GroupKey]) -> list[Admitted]:
    await _lock(session, sorted(set(map(bucket_of, waiting))))
    admitted: list[Admitted] = []
    available_at: Instant | None = None
    while waiting:
        heads = [
            Head(*row) for row in await session.fetch("admissible", groups=write_groups(waiting), limit=MAX_ADMITTED)
        ]
        if not heads:
            break
        numbers = [head.sequence_number for head in heads]
        # One time for all, so that they stand in the order of their numbers.
        available_at = available_at or heads[0].now
        if await session.change("admit", numbers=numbers, available_at=available_at) == len(heads):
            waiting = _with_room(heads)
        else:
            # Another transaction has just taken a message away. Its group is asked for the next one.
            placed = {number for (number,) in await session.fetch("placed_messages", numbers=numbers)}
            heads = [head for head in heads if head.sequence_number in placed]
        admitted += [Admitted(head.queue_id, head.sequence_number, head.priority, available_at) for head in heads]
    return admitted


async def enter(session: SqlSession, numbers: Sequence[int]) -> tuple[set[int], list[Admitted]]:
    """Let messages that have just become available enter their groups.

    Return those that are blocked after it, and every message that was admitted, these or others.
    """
    blocked = await block(session, numbers)
    admitted = await admit(session, blocked.values())
    return blocked.keys() - {message.sequence_number for message in admitted}, admitted


async def block(session: SqlSession, numbers: Sequence[int]) -> Mapping[int, GroupKey]:
    """Let messages that have just become available enter their groups, blocked. Return the group of each that has one.

    The transaction ends with `admit`.
    """
    if not numbers:
        return {}
    await session.change("block", numbers=list(numbers))
    blocked = await session.fetch("blocked_messages", numbers=list(numbers))
    return {number: (queue_id, group_id) for number, queue_id, group_id in blocked}


async def admit_after(
    session: SqlSession, queue_id: int, after: str, version: int, limit: int
) -> tuple[list[Admitted], bool]:
    """Admit blocked messages of the groups of a queue that follow a group. Return whether no group is left."""
    found_rows = await session.fetch("blocked_groups", queue_id=queue_id, after=after, limit=limit)
    groups = [group_id for (group_id,) in found_rows]
    is_last = len(groups) < limit
    admitted = await admit(session, [(queue_id, group_id) for group_id in groups])
    await record_admitted(session, admitted)
    last = None if is_last else groups[-1]
    await session.change("continue_after", id=queue_id, after=after, version=version, admit_after=last)
    return admitted, is_last


async def release_blocked(
    session: SqlSession, queue_id: int, after: str, version: int, limit: int
) -> tuple[list[Admitted], bool]:
    """Make blocked messages of a queue available whose limit was removed. Return whether none is left.

    They enter no group. Receivers find them when they poll. Messages that another transaction has locked stay blocked
    until a later pass. Raises `GroupInUse` if all of them are locked.
    """
    found = [number for (number,) in await session.fetch("blocked_in_queue", queue_id=queue_id, limit=limit)]
    numbers = [number for (number,) in await session.fetch("blocked_for_update", numbers=found)] if found else []
    if found and not numbers:
        raise GroupInUse
    if numbers:
        await session.change("release_blocked", numbers=numbers)
        await record(session, Event.ADMITTED, numbers)
    is_last = len(numbers) == len(found) < limit
    last = None if is_last else after
    await session.change("continue_after", id=queue_id, after=after, version=version, admit_after=last)
    return [], is_last


async def left_groups(session: SqlSession, numbers: Sequence[int]) -> list[GroupKey]:
    """Return the groups in which these messages, which this transaction has locked, have places."""
    return [(queue_id, group_id) for queue_id, group_id in await session.fetch("groups_of", numbers=list(numbers))]


def entered_groups(drafts: Sequence[Draft], receipts: Sequence[Receipt]) -> list[GroupKey]:
    """Return the groups of drafts that were stored as blocked messages."""
    return [
        (draft.queue_id, draft.envelope.group_id)
        for draft, receipt in zip(drafts, receipts, strict=True)
        if receipt.state is MessageState.BLOCKED and draft.envelope.group_id is not None and not receipt.duplicate
    ]


async def with_admitted(
    session: SqlSession, drafts: Sequence[Draft], receipts: Sequence[Receipt], admitted: Sequence[Admitted]
) -> tuple[list[Receipt], list[Admitted]]:
    """Return the receipts with the states after an admission, and the admitted messages that have no receipt here.

    Receipts that are kept for duplicates get these states too.
    """
    numbers = {message.sequence_number for message in admitted}
    own = {receipt.sequence_number for receipt in receipts if not receipt.duplicate}
    if ids := [
        message_id_key(draft)
        for draft, receipt in zip(drafts, receipts, strict=True)
        if draft.duplicate_window and receipt.sequence_number in numbers and not receipt.duplicate
    ]:
        await session.change("correct_receipts", ids=_write_ids(ids))
    return (
        [
            replace(receipt, state=MessageState.AVAILABLE) if receipt.sequence_number in numbers else receipt
            for receipt in receipts
        ],
        [message for message in admitted if message.sequence_number not in own],
    )


def leaves_group(settlement: Move | Removal) -> bool:
    """Return whether a message that has a place in a group loses it by this settlement."""
    return isinstance(settlement, Removal) or settlement.state is not MessageState.AVAILABLE


def any_in_group(entries: Iterable[Draft | Move | Removal]) -> bool:
    """Return whether any of these may be about a message in a group."""
    return any(map(attrgetter("is_in_group"), entries))


def bucket_of(group: GroupKey) -> int:
    """Return the row of `group_lock` that stands for this group on every server."""
    queue_id, group_id = group
    # MariaDB takes ids that differ in blanks at the end for one, and a message may have one from before the limit.
    return crc32(f"{queue_id}:{group_id.rstrip(' ')}".encode()) % BUCKETS


def write_groups(groups: Iterable[GroupKey]) -> str:
    """Write groups as the JSON that statements take."""
    return _encode([{"queue_id": queue_id, "group_id": group_id} for queue_id, group_id in groups]).decode()


def _write_ids(ids: Iterable[MessageIdKey]) -> str:
    return _encode([{"queue_id": queue_id, "message_id": message_id} for queue_id, message_id in ids]).decode()


async def _lock(session: SqlSession, buckets: Sequence[int]) -> None:
    locked = await session.fetch("lock_groups", buckets=buckets)
    if len(locked) < len(buckets):
        raise StoreUnavailable("Rows of the table group_lock are missing, so groups cannot be locked.")


def _with_room(heads: Sequence[Head]) -> list[GroupKey]:
    """Return the groups that have more room than heads. Their other blocked messages, if any, come next."""
    counts = Counter((head.queue_id, head.group_id) for head in heads)
    rooms = {(head.queue_id, head.group_id): head.room for head in heads}
    return sorted(group for group, room in rooms.items() if room > counts[group])
