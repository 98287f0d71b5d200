"""Settling on MariaDB and MySQL: locks the rows that pass their fences, then changes exactly those."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, TypeAlias

from app.broker.ports.settling import Admitted, Extended, Extension
from app.domain.settlement import TOMBSTONE_RETENTION, LockToken, Move, Removal
from app.runtime.clock import Clock
from app.store.mysql.session import Execute, MysqlSession
from app.store.mysql.templates import numbers_json, rows_json
from app.store.shared.engine import check_effective
from app.store.shared.groups import GroupKey, admit, leaves_group
from app.store.shared.history import any_keeps_history, record_renewed, record_settled
from app.store.shared.settlement_params import move_params, tombstone_params

Settled: TypeAlias = tuple[list[bool], list[Admitted]]
"""Whether each settlement took effect, and the messages of their groups that were admitted."""


async def remove(session: MysqlSession, removals: Sequence[Removal], execute: Execute) -> Settled:
    """Delete rows from their queues, into the archive or leaving a tombstone.

    `execute` may commit, so it runs the statements only if no others follow.
    """
    effective, left = await _lock_rows(session, "fence_holds", removals)
    removed = list(compress(removals, effective))
    if removed:
        run = session.execute if left or any_keeps_history(removed) else execute
        await run(*_removal_statements(session, removed))
    admitted = await admit(session, left)
    await record_settled(session, removals, effective, admitted)
    return effective, admitted


async def move(session: MysqlSession, moves: Sequence[Move]) -> Settled:
    """Move rows that pass their fence into their next state."""
    return await _move(session, "fence_holds", moves)


async def release(session: MysqlSession, moves: Sequence[Move]) -> Settled:
    """Free rows whose lock has ended."""
    return await _move(session, "lock_ended", moves)


async def extend(
    session: MysqlSession, clock: Clock, extensions: Sequence[Extension], execute: Execute
) -> list[Extended | None]:
    """Extend locks. Return None for a lock that has ended. Several extensions of one lock build on each other."""
    entries = [
        {
            **_token_params(extension.token),
            "queue_id": extension.queue_id,
            "expired_generation": extension.expired_generation,
            "max_generation": extension.max_generation,
        }
        for extension in extensions
    ]
    read_started_at = clock.monotonic()
    extendable = await _fetch_locked(session, "extendable", entries)
    current = {
        index: Extended(generation, until, now, until, read_started_at) for index, generation, until, now in extendable
    }
    latest: dict[LockToken, Extended] = {}
    answers: list[Extended | None] = []
    for index, extension in enumerate(extensions):
        before = current.get(index)
        if before is not None and (earlier := latest.get(extension.token)) is not None:
            before = earlier if earlier.generation <= extension.max_generation else None
        after = None if before is None else _extend_one(before, extension)
        answers.append(after)
        if after is not None:
            latest[extension.token] = after
    if latest:
        await execute(session.render("extend", rows=rows_json(_extension_row(*item) for item in latest.items())))
        await record_renewed(session, extensions, [answer is not None for answer in answers])
    return answers


async def settle_locked(session: MysqlSession, settlements: Sequence[Move | Removal]) -> list[GroupKey]:
    """Settle rows, if all pass their fences. Return the groups that messages have left. Raises `SettlementsFailed`."""
    if not settlements:
        return []
    effective, left = await _lock_rows(session, "fence_holds", settlements)
    check_effective(settlements, effective)
    removals = [settlement for settlement in settlements if isinstance(settlement, Removal)]
    moves = [settlement for settlement in settlements if isinstance(settlement, Move)]
    await session.execute(
        *(_removal_statements(session, removals) if removals else ()),
        *(_move_statements(session, moves) if moves else ()),
    )
    return left


async def _move(session: MysqlSession, name: str, moves: Sequence[Move]) -> Settled:
    effective, left = await _lock_rows(session, name, moves)
    if moved := list(compress(moves, effective)):
        run = session.execute if left or any_keeps_history(moved) else session.commit
        await run(*_move_statements(session, moved))
    admitted = await admit(session, left)
    await record_settled(session, moves, effective, admitted)
    return effective, admitted


def _removal_statements(session: MysqlSession, removals: Sequence[Removal]) -> list[bytes]:
    """Return the statements that end these messages, whose rows are locked."""
    return [
        *_archive_statements(session, [removal for removal in removals if removal.retention]),
        *_unarchived_statements(session, [removal for removal in removals if not removal.retention]),
        *_tombstone_statements(session, [removal for removal in removals if removal.retention < TOMBSTONE_RETENTION]),
        session.render("delete_settled", numbers=numbers_json(_numbers(removals))),
    ]


def _move_statements(session: MysqlSession, moves: Sequence[Move]) -> list[bytes]:
    """Return the statements that give these messages, whose rows are locked, their next state."""
    # Tombstones first: they read when the locks ended, and the next statement clears that.
    return [*_tombstone_statements(session, moves), session.render("move", rows=rows_json(map(move_params, moves)))]


def _numbers(settlements: Sequence[Move | Removal]) -> list[int]:
    return [settlement.token.sequence_number for settlement in settlements]


async def _lock_rows(
    session: MysqlSession, name: str, settlements: Sequence[Move | Removal]
) -> tuple[list[bool], list[GroupKey]]:
    """Lock the rows that pass the statement's fences.

    Return for each settlement whether it may take effect, and the groups that messages leave by them. Of several
    settlements for one lock, only the first may take effect.
    """
    entries = [
        {
            **_token_params(settlement.token),
            "queue_id": settlement.queue_id,
            "generation_above": settlement.fence.generation_above,
            "max_generation": settlement.fence.max_generation,
            "knows_group": int(settlement.is_in_group or not leaves_group(settlement)),
        }
        for settlement in settlements
    ]
    locked: dict[int, str | None] = {row[0]: row[1] for row in await _fetch_locked(session, name, entries)}
    settled: set[LockToken] = set()
    answers: list[bool] = []
    left: list[GroupKey] = []
    for index, settlement in enumerate(settlements):
        is_first = index in locked and settlement.token not in settled
        answers.append(is_first)
        if is_first:
            settled.add(settlement.token)
            if (group_id := locked[index]) is not None and leaves_group(settlement):
                left.append((settlement.queue_id, group_id))
    return answers, left


async def _fetch_locked(
    session: MysqlSession, name: str, entries: Sequence[Mapping[str, Any]]
) -> Sequence[Sequence[Any]]:
    """Run a locking statement over rows in ascending order, each with its index among the entries."""
    indexed = [{**row, "entry_index": index} for index, row in enumerate(entries)]
    return await session.fetch(name, rows=rows_json(sorted(indexed, key=lambda row: row["sequence_number"])))


def _token_params(token: LockToken) -> dict[str, Any]:
    return {"sequence_number": token.sequence_number, "lock_token": token.secret}


def _extend_one(before: Extended, extension: Extension) -> Extended:
    wanted = before.read_at + extension.duration
    until = wanted if extension.is_exact else max(before.locked_until, wanted)
    generation = before.generation if extension.is_exact else before.generation + 1
    return Extended(generation, until, before.read_at, before.locked_until, before.read_started_at)


def _extension_row(token: LockToken, extended: Extended) -> Mapping[str, Any]:
    return {
        "sequence_number": token.sequence_number,
        "generation": extended.generation,
        "locked_until": extended.locked_until,
    }


def _archive_statements(session: MysqlSession, removals: Sequence[Removal]) -> list[bytes]:
    """Return the statements that copy messages into the archive, to be sealed later."""
    if not removals:
        return []
    return [
        session.render("archive_settled", rows=rows_json(map(_archive_row, removals))),
        session.render("add_unsealed", numbers=_numbers(removals)),
    ]


def _archive_row(removal: Removal) -> Mapping[str, Any]:
    return {
        "sequence_number": removal.token.sequence_number,
        "queue": removal.queue,
        "outcome": removal.outcome.value,
        "retention": removal.retention,
    }


def _unarchived_statements(session: MysqlSession, removals: Iterable[Removal]) -> list[bytes]:
    """Return the statements that count messages that leave without a row in the archive, one for each queue."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for removal in removals:
        numbers[removal.queue].append(removal.token.sequence_number)
    return [session.render("count_unarchived", numbers=some, queue=queue) for queue, some in numbers.items()]


def _tombstone_statements(session: MysqlSession, settlements: Iterable[Move | Removal]) -> list[bytes]:
    """Return the statement that records how these deliveries ended, if there are any."""
    tombstones = [tombstone_params(settlement) for settlement in settlements]
    return [session.render("add_tombstones", rows=rows_json(tombstones))] if tombstones else []
