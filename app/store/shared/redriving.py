"""Redrives within a transaction: dead-lettered messages become available in their queue or in another one."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
from app.store.shared.groups import enter
from app.store.shared.history import record, record_admitted
from app.store.shared.json_columns import read_properties, write_properties
from app.store.shared.message_changes import lock_rows


async def redrive(session: SqlSession, redrives: Sequence[Redrive]) -> tuple[list[bool], list[Admitted]]:
    """Make these messages available. Return for each whether it was dead-lettered, and all messages that were admitted.

    Raises `QueueGone` if a target is deleted, or a queue that forwards was changed; then nothing has moved.
    """
    queues = await _served_queues(
        session, {queue for redrive in redrives for queue in (redrive.row.queue_id, redrive.to_queue_id)}
    )
    if not all(redrive.to_queue_id in queues for redrive in redrives):
        raise QueueGone
    expected = [replace(redrive.row, state=MessageState.DEAD_LETTERED) for redrive in redrives]
    locked = await lock_rows(session, "unlocked_for_update", expected)
    effective = [
        is_locked and redrive.row.queue_id in queues for redrive, is_locked in zip(redrives, locked, strict=True)
    ]
    redriven = [*compress(redrives, effective)]
    await _move(session, redriven, queues)
    entering = [redrive.row.sequence_number for redrive in redriven if queues[redrive.to_queue_id].has_groups]
    admitted = (await enter(session, entering))[1] if entering else []
    await record(session, Event.REDRIVEN, [redrive.row.sequence_number for redrive in redriven])
    await record_admitted(session, admitted, entering)
    await _hold_sources(session, redriven)
    return effective, admitted


async def _hold_sources(session: SqlSession, redrives: Sequence[Redrive]) -> None:
    """Keep the settings of queues that forward as they were read, until the transaction ends.

    It waits for no other transaction, because this one may hold groups.
    """
    sources = {redrive.forwarded_from.id: redrive.forwarded_from for redrive in redrives if redrive.forwarded_from}
    for queue in sources.values():
        if not await session.fetch("hold_unchanged_queue", id=queue.id, version=queue.version):
            raise QueueGone


async def _move(session: SqlSession, redrives: Sequence[Redrive], queues: Mapping[int, Queue]) -> None:
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
