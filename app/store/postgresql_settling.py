"""Settling on PostgreSQL: the columns of what is asked, in the order in which rows are locked."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from app.broker.ports import Extension
from app.domain.settlement import LockToken, Move, Removal
from app.store.documents import write_amended
from app.store.rows import Row


class Entry(Protocol):
    """Something asked of a locked row."""

    @property
    def token(self) -> LockToken:
        """Which delivery is meant."""
        ...


AnyEntry = TypeVar("AnyEntry", bound=Entry)
Columns = dict[str, list[Any]]


async def settle(
    entries: Sequence[AnyEntry],
    columns: Callable[[Sequence[AnyEntry]], Columns],
    run: Callable[..., Awaitable[Sequence[Row]]],
) -> list[Row | None]:
    """Run a statement over the entries; for each the row that says it took effect, or None.

    Rows are locked by ascending number, so that two statements never wait for each other. Entries that name one row
    take effect one after the other, as if each had come alone.
    """
    outcomes: list[Row | None] = [None] * len(entries)
    for places in _rounds([entry.token.sequence_number for entry in entries]):
        for row in await run(**columns([entries[place] for place in places])):
            outcomes[places[row[0] - 1]] = row
    return outcomes


def _rounds(numbers: Sequence[int]) -> list[list[int]]:
    """The places of these numbers, by ascending number; each number once a round, nearly always in a single one."""
    rounds: list[list[int]] = []
    times: Counter[int] = Counter()
    for place in sorted(range(len(numbers)), key=numbers.__getitem__):
        number = numbers[place]
        if times[number] == len(rounds):
            rounds.append([])
        rounds[times[number]].append(place)
        times[number] += 1
    return rounds


def of_removals(entries: Sequence[Removal]) -> Columns:
    """What `remove` needs."""
    return _tokens(entries) | {
        "queue": [entry.queue for entry in entries],
        "outcome": [entry.outcome for entry in entries],
        "retention": [entry.retention for entry in entries],
        "above": [entry.fence.above for entry in entries],
        "up_to": [entry.fence.up_to for entry in entries],
    }


def of_moves(entries: Sequence[Move]) -> Columns:
    """What `move` and `release` need."""
    return _tokens(entries) | {
        "outcome": [entry.outcome for entry in entries],
        "state": [entry.state for entry in entries],
        "delay": [entry.delay for entry in entries],
        "failures": [entry.failures for entry in entries],
        "last_failure": [entry.last_failure for entry in entries],
        "dead_letter_reason": [entry.dead_letter_reason for entry in entries],
        "dead_letter_description": [entry.dead_letter_description for entry in entries],
        "properties": [write_amended(entry.properties) for entry in entries],
        "above": [entry.fence.above for entry in entries],
        "up_to": [entry.fence.up_to for entry in entries],
    }


def of_extensions(entries: Sequence[Extension]) -> Columns:
    """What `extend` needs."""
    return _tokens(entries) | {
        "by": [entry.by for entry in entries],
        "evidence": [entry.evidence for entry in entries],
    }


def _tokens(entries: Sequence[Removal] | Sequence[Move] | Sequence[Extension]) -> Columns:
    return {
        "sequence_number": [entry.token.sequence_number for entry in entries],
        "lock_token": [entry.token.secret for entry in entries],
        "queue_id": [entry.queue_id for entry in entries],
    }
