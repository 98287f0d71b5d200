"""The faults that an audit reports, and how many of them it names."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame, Row

MAX_NAMED = 1000
"""Findings of one kind that are listed; the others are counted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, and the message, batch, file, or queue and day that it concerns.

    `is_unexported` marks a batch that the archive removed before an export: the lake can never have it.
    """

    what: str
    batch: int | None = None
    queue: str | None = None
    sequence_number: int | None = None
    message_id: str | None = None
    file: str | None = None
    day: date | None = None
    is_unexported: bool = False

    def __str__(self) -> str:
        if self.file is not None:
            return f"File {self.file} {self.what}."
        if self.day is not None:
            return f"Queue {self.queue}, messages of {self.day}: {self.what}."
        if self.message_id is None:
            return f"Batch {self.batch} {self.what}."
        number = f" (sequence number {self.sequence_number}, queue {self.queue})" if self.queue else ""
        return f"Message {self.message_id}{number} {self.what}."


LimitedFindings = tuple[list[Finding], int]
"""Findings of one kind, and the number of further ones."""


def limit_rows(found: DataFrame, name: Callable[[Row], Finding]) -> LimitedFindings:
    """Return the first of these rows as findings, and the number of further ones."""
    rows = found.limit(MAX_NAMED + 1).collect()
    unnamed = found.count() - MAX_NAMED if len(rows) > MAX_NAMED else 0
    return [name(row) for row in rows[:MAX_NAMED]], unnamed


def limit_findings(found: Sequence[Finding]) -> LimitedFindings:
    """Return the first of these findings, and the number of further ones."""
    return list(found[:MAX_NAMED]), max(len(found) - MAX_NAMED, 0)


def merge(found: Iterable[LimitedFindings], most: int = MAX_NAMED) -> LimitedFindings:
    """Return findings of several kinds or parts as one list, of at most that many."""
    named, unnamed = list[Finding](), 0
    for more, others in found:
        named += more
        unnamed += others + max(len(named) - most, 0)
        del named[most:]
    return named, unnamed
