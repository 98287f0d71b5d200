"""Redrives within a transaction: unlocked messages become available in another queue, or dead-lettered ones in their own."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress

from app.broker.ports.maintaining import Redrive
from app.broker.ports.sending import QueueGone
from app.broker.ports.settling import Admitted
from app.domain.dead_letters import with_source
from app.domain.history import Event
from app.domain.message import MessageState
from app.domain.queue import FEATURE_LEVEL, Queue
from app.store.shared import rows
from app.store.shared.database import SqlSession
from app.store.shared.groups import admit, block, heads_with_room, hold, left_groups
from app.store.shared.history import record, record_admitted
from app.store.shared.json_columns import read_properties, write_properties
from app.store.shared.message_changes import lock_rows

LOCKING_STATEMENTS = {
    MessageState.DEAD_LETTERED: ("unlocked_for_update", (MessageState.DEAD_LETTERED,)),
    MessageState.AVAILABLE: ("movable_for_update", (MessageState.AVAILABLE, MessageState.BLOCKED)),
    MessageState.BLOCKED: ("movable_for_update", (MessageState.BLOCKED,)),
}
"""The states from which a message is redriven: the statement that locks rows, and the states in which they were read."""


async def redrive(session: SqlSession, redrives: Sequence[Redrive]) -> tuple[list[bool], list[Admitted]]:
    """Make these messages available. Return for each whether it has moved, and all messages that were admitted.

    Raises `QueueGone` if a target is deleted, or a queue that forwards was changed; then nothing has moved. Raises
    `GroupInUse`.
    """
    queues = await _served_queues(
        session, {queue for redrive in redrives for queue in (redrive.row.queue_id, redrive.to_queue_id)}
    )
    if not all(redrive.to_queue_id in queues for redrive in redrives):
        raise QueueGone
    served = {index: redrive for index, redrive in enumerate(redrives) if redrive.row.queue_id in queues}
    await _hold_groups(session, served.values(), queues)
    states = await _lock(session, served)
    first = {index: served[index] for index, state in states.items() if state is not MessageState.BLOCKED}
    left = await left_groups(session, _numbers(first.values())) if first else []
    await _move(session, first.values(), queues)
    blocked = {index: served[index] for index, state in states.items() if state is MessageState.BLOCKED}
    following = await _followers(session, blocked)
    await _move(session, following.values(), queues)
    moved = {**first, **following}
    entering = [one.row.sequence_number for one in moved.values() if queues[one.to_queue_id].has_groups]
    entered = await block(session, entering)
    admitted = await admit(session, [*left, *entered.values()])
    await record(session, Event.REDRIVEN, _numbers(moved.values()))
    await record_admitted(session, admitted, entering)
    await _hold_sources(session, moved.values())
    return [index in moved for index in range(len(redrives))], admitted


async def before_held(session: SqlSession, redrives: Sequence[Redrive]) -> Sequence[Redrive]:
    """Return the redrives, ascending and of one queue, before the first one whose row another transaction holds.

    Locks the rows of the others. Those that have changed since they were read are no reason to stop. Raises `GroupInUse`.
    """
    queues = await _served_queues(session, {redrive.to_queue_id for redrive in redrives})
    await _hold_groups(session, redrives, queues)
    states = await _lock(session, dict(enumerate(redrives)))
    missing = [redrive for index, redrive in enumerate(redrives) if index not in states]
    if not missing:
        return redrives
    found = await session.fetch("movable_messages", numbers=_numbers(missing), queue_id=missing[0].row.queue_id)
    held = {number for (number,) in found}
    first = next((index for index, one in enumerate(redrives) if one.row.sequence_number in held), len(redrives))
    return redrives[:first]


async def _hold_groups(session: SqlSession, redrives: Collection[Redrive], queues: Mapping[int, Queue]) -> None:
    """If blocked messages are to move, hold the groups that any of the messages leaves or enters.

    Groups are held before blocked messages are locked. Messages in flight may be locked later here, because `_lock`
    waits for none.
    """
    if not any(redrive.row.state is MessageState.BLOCKED for redrive in redrives):
        return
    group_ids = await _group_ids(session, redrives)
    await hold(
        session,
        {
            (queue_id, group_id)
            for redrive in redrives
            for queue_id in (redrive.row.queue_id, redrive.to_queue_id)
            if (group_id := group_ids.get(redrive.row.sequence_number)) is not None
            and (queue_id == redrive.row.queue_id or (queue_id in queues and queues[queue_id].has_groups))
        },
    )


async def _lock(session: SqlSession, redrives: Mapping[int, Redrive]) -> Mapping[int, MessageState]:
    """Lock the rows that may move. Return for each of these redrives the state of its row.

    A row that was read as blocked may have become available since. Of two redrives of one row, only the
    first locks it.
    """
    states: dict[int, MessageState] = {}
    for state, (statement, read_states) in LOCKING_STATEMENTS.items():
        expected = {
            index: replace(redrive.row, state=state)
            for index, redrive in redrives.items()
            if index not in states and redrive.row.state in read_states
        }
        locked = await lock_rows(session, statement, [*expected.values()])
        states |= dict.fromkeys(compress(expected, locked), state)
    return states


async def _followers(session: SqlSession, blocked: Mapping[int, Redrive]) -> Mapping[int, Redrive]:
    """Return the redrives of those blocked rows that follow others of their group: all before them have moved.

    Their group has a free place, and its first blocked row is among these. Otherwise a message before them stays here, and
    they stay behind it.
    """
    if not blocked:
        return {}
    group_ids = await _group_ids(session, blocked.values())
    groups = {
        index: (redrive.row.queue_id, str(group_ids[redrive.row.sequence_number])) for index, redrive in blocked.items()
    }
    heads = await heads_with_room(session, groups.values())
    numbers = {redrive.row.sequence_number for redrive in blocked.values()}
    return {index: redrive for index, redrive in blocked.items() if heads.get(groups[index]) in numbers}


async def _group_ids(session: SqlSession, redrives: Collection[Redrive]) -> Mapping[int, str | None]:
    return {row[0]: row[1] for row in await session.fetch("group_ids", numbers=_numbers(redrives))}


def _numbers(redrives: Collection[Redrive]) -> list[int]:
    return [redrive.row.sequence_number for redrive in redrives]


async def _hold_sources(session: SqlSession, redrives: Collection[Redrive]) -> None:
    """Keep the settings of queues that forward as they were read, until the transaction ends.

    It waits for no other transaction, because this one may hold groups.
    """
    sources = {redrive.forwarded_from.id: redrive.forwarded_from for redrive in redrives if redrive.forwarded_from}
    for queue in sources.values():
        if not await session.fetch("hold_unchanged_queue", id=queue.id, version=queue.version):
            raise QueueGone


async def _move(session: SqlSession, redrives: Collection[Redrive], queues: Mapping[int, Queue]) -> None:
    """Make locked rows available, and count those that change their queue."""
    groups: defaultdict[tuple[int, int, str | None], list[int]] = defaultdict(list)
    for redrive in redrives:
        forwarded_from = redrive.forwarded_from and redrive.forwarded_from.name
        groups[redrive.row.queue_id, redrive.to_queue_id, forwarded_from].append(redrive.row.sequence_number)
    for (from_queue_id, to_queue_id, forwarded_from), numbers in groups.items():
        for queue_id, sign in ((from_queue_id, -1), (to_queue_id, 1)) if from_queue_id != to_queue_id else ():
            name = queues[queue_id].name
            await session.change("count_moved", numbers=numbers, queue_id=queue_id, queue=name, sign=sign)
        if queues[from_queue_id].shares_bodies and not queues[to_queue_id].shares_bodies:
            await session.change("stop_sharing", numbers=numbers)
        keeps_reason = int(forwarded_from is not None)
        await session.change("redrive", numbers=numbers, to_queue_id=to_queue_id, keeps_reason=keeps_reason)
        if forwarded_from is not None:
            await _name_source(session, numbers, forwarded_from)


async def _name_source(session: SqlSession, numbers: Sequence[int], queue: str) -> None:
    for number, properties in await session.fetch("properties_of", numbers=numbers):
        changed = with_source(read_properties(properties), queue)
        await session.change("change_properties", sequence_number=number, properties=write_properties(changed))


async def _served_queues(session: SqlSession, queue_ids: Iterable[int]) -> Mapping[int, Queue]:
    """Return the queues that exist and that this version knows, by id."""
    found_rows = [row for queue_id in queue_ids for row in await session.fetch("queue_by_id", id=queue_id)]
    return {queue.id: queue for queue in map(rows.queue, found_rows) if queue.feature_level <= FEATURE_LEVEL}
