"""Settling on PostgreSQL: entries become parameters of a statement, in the order in which rows are locked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from app.broker.ports.settling import Admitted, Extension
from app.domain.message import MessageState
from app.domain.settlement import TOMBSTONE_RETENTION, LockToken, Move, Removal
from app.domain.work_unit import WorkUnit
from app.store.postgresql.entries import fetch_entries
from app.store.shared.database import SqlSession
from app.store.shared.engine import check_effective
from app.store.shared.groups import GroupKey, admit
from app.store.shared.history import record_renewed, record_settled
from app.store.shared.json_columns import write_properties_change
from app.store.shared.rows import Row


class LockedEntry(Protocol):
    """A request about a locked row."""

    @property
    def token(self) -> LockToken:
        """The token of the delivery."""
        ...

    @property
    def queue_id(self) -> int:
        """The queue of the row."""
        ...


AnyEntry = TypeVar("AnyEntry", bound=LockedEntry)
AnySettlement = TypeVar("AnySettlement", Move, Removal)


@dataclass(frozen=True, slots=True)
class Settlement(Generic[AnyEntry]):
    """A statement about locked rows: its name, and the parameters of an entry besides token and queue."""

    name: str
    columns: tuple[str, ...]
    values: Callable[[AnyEntry], tuple[Any, ...]]


async def settle(
    session: SqlSession, settlement: Settlement[AnyEntry], entries: Sequence[AnyEntry], **shared: Any
) -> list[Row | None]:
    """Run a statement over the entries. Return for each the row that reports its effect, or None without effect.

    Rows are locked by ascending number, so that two statements never deadlock. Entries that name one row take effect
    one after the other, as separate requests would.
    """
    results: list[Row | None] = [None] * len(entries)
    columns = TOKEN_COLUMNS + settlement.columns
    for indexes in _rounds([entry.token.sequence_number for entry in entries]):
        values = [_token_values(entries[index]) + settlement.values(entries[index]) for index in indexes]
        for row in await fetch_entries(session, settlement.name, columns, values, **shared):
            results[indexes[row[0] - 1]] = row
    return results


async def settle_in_groups(
    session: SqlSession, settlement: Settlement[AnySettlement], entries: Sequence[AnySettlement]
) -> tuple[list[Row | None], list[Admitted]]:
    """Within a transaction: settle, admit the next messages of the groups that messages have left, and record it."""
    settled = await settle(session, settlement, entries, **IN_GROUPS)
    admitted = await admit(session, left_groups(settled))
    await record_settled(session, entries, [row is not None for row in settled], admitted)
    return settled, admitted


async def settle_unit(session: SqlSession, unit: WorkUnit) -> tuple[list[GroupKey], list[Admitted]]:
    """Within a transaction: settle the messages of a unit. Raises `SettlementsFailed`.

    Return the groups that messages have left, and the messages that moves have made available.
    """
    removals, moves = unit.removals, unit.moves
    removed = await settle(session, REMOVE, removals, **IN_GROUPS)
    moved = await settle(session, MOVE, moves, **IN_GROUPS)
    check_effective([*removals, *moves], (row is not None for row in (*removed, *moved)))
    return left_groups([*removed, *moved]), _returned(moves, moved)


def _returned(moves: Sequence[Move], moved: Sequence[Row | None]) -> list[Admitted]:
    """Return the messages that moves have made available, from the rows that report them."""
    returned: list[Admitted] = []
    for move, row in zip(moves, moved, strict=True):
        if row is not None and move.state is MessageState.AVAILABLE:
            *_, priority, available_at = row
            returned.append(Admitted(move.queue_id, move.token.sequence_number, priority, available_at))
    return returned


def left_groups(settled: Sequence[Row | None]) -> list[GroupKey]:
    """Return the groups that messages have left, from the rows that report their settlements."""
    return [(row[1], row[2]) for row in settled if row is not None and row[2] is not None]


async def extend(session: SqlSession, extensions: Sequence[Extension]) -> list[Row | None]:
    """Extend locks. Return the row of each lock that was extended."""
    return await settle(session, EXTEND, extensions)


async def extend_and_record(session: SqlSession, extensions: Sequence[Extension]) -> list[Row | None]:
    """Within a transaction: extend locks, and record it."""
    extended = await extend(session, extensions)
    await record_renewed(session, extensions, [row is not None for row in extended])
    return extended


WITHOUT_GROUPS = {"tombstone_retention": TOMBSTONE_RETENTION, "admits": False}
"""What settlements have in common that have no effect on messages in groups."""

IN_GROUPS = {"tombstone_retention": TOMBSTONE_RETENTION, "admits": True}
"""What settlements have in common after which the transaction admits the next messages of the groups."""


def _rounds(numbers: Sequence[int]) -> list[list[int]]:
    """Return the indexes of these numbers in rounds, by ascending number. A round has each number once; most calls need
    a single round."""
    rounds: list[list[int]] = []
    occurrences: dict[int, int] = {}
    for index in sorted(range(len(numbers)), key=numbers.__getitem__):
        earlier = occurrences.get(numbers[index], 0)
        if earlier == len(rounds):
            rounds.append([])
        rounds[earlier].append(index)
        occurrences[numbers[index]] = earlier + 1
    return rounds


TOKEN_COLUMNS = ("sequence_number", "lock_token", "queue_id")


def _token_values(entry: LockedEntry) -> tuple[Any, ...]:
    return (entry.token.sequence_number, entry.token.secret, entry.queue_id)


def _removal_values(removal: Removal) -> tuple[Any, ...]:
    fence = removal.fence
    return (removal.queue, removal.outcome, removal.retention, fence.generation_above, fence.max_generation)


def _move_values(move: Move) -> tuple[Any, ...]:
    return (
        move.outcome,
        move.state,
        move.delay,
        move.failures,
        move.delivery_count,
        move.last_failure,
        move.dead_letter_reason,
        move.dead_letter_description,
        write_properties_change(move.properties),
        move.fence.generation_above,
        move.fence.max_generation,
    )


def _extension_values(extension: Extension) -> tuple[Any, ...]:
    return (extension.duration, extension.expired_generation, extension.max_generation, extension.is_exact)


MOVE_COLUMNS = (
    "outcome",
    "state",
    "delay",
    "failures",
    "delivery_count",
    "last_failure",
    "dead_letter_reason",
    "dead_letter_description",
    "properties",
    "generation_above",
    "max_generation",
)
REMOVE = Settlement("remove", ("queue", "outcome", "retention", "generation_above", "max_generation"), _removal_values)
RECORDED_REMOVE = replace(REMOVE, name="remove_recorded")
"""The same for removals by which receivers settle messages. The statement records them."""
MOVE = Settlement("move", MOVE_COLUMNS, _move_values)
RELEASE = Settlement("release", MOVE_COLUMNS, _move_values)
EXTEND = Settlement("extend", ("duration", "expired_generation", "max_generation", "is_exact"), _extension_values)
