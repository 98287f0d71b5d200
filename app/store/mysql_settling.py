"""Settling on MariaDB and MySQL: the rows whose fence stands are locked, then exactly those are changed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

from app.broker.ports import Extended, Extension
from app.domain.settlement import TOMBSTONE_KEEP, LockToken, Move, Removal
from app.runtime.clock import Clock
from app.store.endings import move_values, tombstone_values
from app.store.mysql_session import Session
from app.store.mysql_text import column, table


async def remove(session: Session, removals: Sequence[Removal], *afterwards: bytes) -> list[bool]:
    """Take rows out of their queues, into the archive or leaving a tombstone; whether each removal took effect.

    Where one did, the statements in `afterwards` run in the same transaction.
    """
    took = await _lock(session, "in_force", removals)
    if gone := list(compress(removals, took)):
        archived = [_archived(removal) for removal in gone if removal.retention]
        numbers = [removal.token.sequence_number for removal in gone]
        await session.finish(
            *([session.text("archive", rows=table(archived))] if archived else []),
            *_unarchived(session, [removal for removal in gone if not removal.retention]),
            *_tombstones(session, [removal for removal in gone if removal.retention < TOMBSTONE_KEEP]),
            session.text("take_out", numbers=column(numbers)),
            *afterwards,
        )
    return took


async def move(session: Session, moves: Sequence[Move]) -> list[bool]:
    """Put rows whose fence stands into their next state; whether each move took effect."""
    return await _move(session, "in_force", moves)


async def release(session: Session, moves: Sequence[Move]) -> list[bool]:
    """Free rows whose lock has ended; whether each move took effect."""
    return await _move(session, "out_of_force", moves)


async def extend(session: Session, clock: Clock, extensions: Sequence[Extension]) -> list[Extended | None]:
    """Prolong locks; None where one has ended. Of several for one lock each builds on the one before."""
    asked = [
        {**_of_token(extension.token), "queue_id": extension.queue_id, "evidence": extension.evidence}
        for extension in extensions
    ]
    began = clock.monotonic()
    extendable = await _fetch_locked(session, "extendable", asked)
    found = {place: Extended(generation, until, now, until, began) for place, generation, until, now in extendable}
    latest: dict[LockToken, Extended] = {}
    answers: list[Extended | None] = []
    for place, extension in enumerate(extensions):
        before = latest.get(extension.token, found[place]) if place in found else None
        after = None if before is None else _prolonged(before, extension)
        answers.append(after)
        if after is not None:
            latest[extension.token] = after
    if latest:
        await session.finish(session.text("extend", rows=table(_extended(*item) for item in latest.items())))
    return answers


async def _move(session: Session, name: str, moves: Sequence[Move]) -> list[bool]:
    took = await _lock(session, name, moves)
    if moved := list(compress(moves, took)):
        # The tombstones first: they tell when the locks ended, which the rows forget.
        await session.finish(*_tombstones(session, moved), session.text("move", rows=table(map(move_values, moved))))
    return took


async def _lock(session: Session, name: str, endings: Sequence[Move | Removal]) -> list[bool]:
    """Lock the rows that a statement lets through; whether each ending may take effect, of several for one lock the first."""
    asked = [
        {
            **_of_token(ending.token),
            "queue_id": ending.queue_id,
            "above": ending.fence.above,
            "up_to": ending.fence.up_to,
        }
        for ending in endings
    ]
    through = {place for (place,) in await _fetch_locked(session, name, asked)}
    ended: set[LockToken] = set()
    answers: list[bool] = []
    for place, ending in enumerate(endings):
        answers.append(place in through and ending.token not in ended)
        if place in through:
            ended.add(ending.token)
    return answers


async def _fetch_locked(session: Session, name: str, asked: Sequence[Mapping[str, Any]]) -> Sequence[Sequence[Any]]:
    """Run a locking statement over rows in ascending order, each with its place among what was asked."""
    placed = [{**row, "place": place} for place, row in enumerate(asked)]
    return await session.fetch(name, rows=table(sorted(placed, key=lambda row: row["sequence_number"])))


def _of_token(token: LockToken) -> dict[str, Any]:
    return {"sequence_number": token.sequence_number, "lock_token": token.secret}


def _prolonged(before: Extended, extension: Extension) -> Extended:
    until = max(before.locked_until, before.read_at + extension.by)
    return Extended(before.generation + 1, until, before.read_at, before.locked_until, before.read_after)


def _extended(token: LockToken, extended: Extended) -> Mapping[str, Any]:
    return {
        "sequence_number": token.sequence_number,
        "generation": extended.generation,
        "locked_until": extended.locked_until,
    }


def _archived(removal: Removal) -> Mapping[str, Any]:
    return {
        "sequence_number": removal.token.sequence_number,
        "queue": removal.queue,
        "outcome": removal.outcome.value,
        "retention": removal.retention,
    }


def _unarchived(session: Session, removals: Iterable[Removal]) -> list[bytes]:
    """The statements that count what leaves no row in the archive, one for each queue."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for removal in removals:
        numbers[removal.queue].append(removal.token.sequence_number)
    return [session.text("count_unarchived", numbers=some, queue=queue) for queue, some in numbers.items()]


def _tombstones(session: Session, endings: Iterable[Move | Removal]) -> list[bytes]:
    """The statement that remembers how these deliveries ended, if there are any."""
    stones = [tombstone_values(ending) for ending in endings]
    return [session.text("entomb", rows=table(stones))] if stones else []
