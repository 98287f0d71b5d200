"""Settling on PostgreSQL: entries become columns of parameters, in the order in which rows are locked."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from app.broker.ports import Extension
from app.domain.settlement import LockToken, Move, Removal
from app.store.records.json_columns import write_properties_change
from app.store.records.rows import Row


class LockedEntry(Protocol):
    """A request about a locked row."""

    @property
    def token(self) -> LockToken:
        """The token of the delivery."""
        ...


AnyEntry = TypeVar("AnyEntry", bound=LockedEntry)
Columns = dict[str, list[Any]]


async def settle(
    entries: Sequence[AnyEntry],
    columns: Callable[[Sequence[AnyEntry]], Columns],
    run: Callable[..., Awaitable[Sequence[Row]]],
) -> list[Row | None]:
    """Run a statement over the entries. Return for each the row that reports its effect, or None without effect.

    Rows are locked by ascending number, so that two statements never deadlock. Entries that name one row take effect
    one after the other, as separate requests would.
    """
    results: list[Row | None] = [None] * len(entries)
    for indexes in _rounds([entry.token.sequence_number for entry in entries]):
        for row in await run(**columns([entries[index] for index in indexes])):
            results[indexes[row[0] - 1]] = row
    return results


def _rounds(numbers: Sequence[int]) -> list[list[int]]:
    """Return the indexes of these numbers in rounds, by ascending number. A round has each number once; most calls need
    a single round."""
    rounds: list[list[int]] = []
    occurrences: Counter[int] = Counter()
    for index in sorted(range(len(numbers)), key=numbers.__getitem__):
        number = numbers[index]
        if occurrences[number] == len(rounds):
            rounds.append([])
        rounds[occurrences[number]].append(index)
        occurrences[number] += 1
    return rounds


def removal_columns(entries: Sequence[Removal]) -> Columns:
    """Return the parameters of `remove`."""
    return _token_columns(entries) | {
        "queue": [entry.queue for entry in entries],
        "outcome": [entry.outcome for entry in entries],
        "retention": [entry.retention for entry in entries],
        "above": [entry.fence.generation_above for entry in entries],
        "up_to": [entry.fence.max_generation for entry in entries],
    }


def move_columns(entries: Sequence[Move]) -> Columns:
    """Return the parameters of `move` and `release`."""
    return _token_columns(entries) | {
        "outcome": [entry.outcome for entry in entries],
        "state": [entry.state for entry in entries],
        "delay": [entry.delay for entry in entries],
        "failures": [entry.failures for entry in entries],
        "last_failure": [entry.last_failure for entry in entries],
        "dead_letter_reason": [entry.dead_letter_reason for entry in entries],
        "dead_letter_description": [entry.dead_letter_description for entry in entries],
        "properties": [write_properties_change(entry.properties) for entry in entries],
        "above": [entry.fence.generation_above for entry in entries],
        "up_to": [entry.fence.max_generation for entry in entries],
    }


def extension_columns(entries: Sequence[Extension]) -> Columns:
    """Return the parameters of `extend`."""
    return _token_columns(entries) | {
        "by": [entry.duration for entry in entries],
        "evidence": [entry.expired_generation for entry in entries],
    }


def _token_columns(entries: Sequence[Removal] | Sequence[Move] | Sequence[Extension]) -> Columns:
    return {
        "sequence_number": [entry.token.sequence_number for entry in entries],
        "lock_token": [entry.token.secret for entry in entries],
        "queue_id": [entry.queue_id for entry in entries],
    }
