"""The ledger of an audit: what the server has counted as accepted, and what is left of it, by queue and day."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame, Row

from peeklock_pipeline.database import AcceptedCount
from peeklock_pipeline.jobs.findings import Finding
from peeklock_pipeline.transforms import audit as ask

QueueDay = tuple[str, date]
"""A queue, and a day on which it accepted messages."""


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One queue and day of the ledger.

    `missing` messages were accepted but are in no place; below zero, more were found than were accepted.
    """

    queue: str
    date: date
    accepted: int
    live: int
    dead_lettered: int
    completed: int
    received: int
    expired: int
    purged: int
    cancelled: int
    surplus: int
    missing: int


@dataclass(frozen=True, slots=True)
class LedgerInputs:
    """Messages with digests of their content, by queue and day.

    `accounts` are the server's: what it accepted, and what the database still holds. `removed` left the lake by its
    retention. `opening` were gone before the lake counted, and None where the lake has not counted yet.
    """

    accounts: Sequence[AcceptedCount]
    removed: Mapping[QueueDay, int]
    opening: Mapping[QueueDay, int] | None

    def missing(self, of_lake: Mapping[QueueDay, int]) -> dict[QueueDay, int]:
        """How many messages are neither in the database nor in the lake, where any are, or where there are too many."""
        if self.opening is None:
            return {}
        left = Counter({(one.queue, one.day): one.accepted - one.held for one in self.accounts})
        for part in (of_lake, self.removed, self.opening):
            left.subtract(part)
        return {day: count for day, count in left.items() if count}


def ledger_lines(ledger: DataFrame, inputs: LedgerInputs) -> list[LedgerLine]:
    """The lines of a ledger with what is missing from them."""
    rows: dict[QueueDay, Row] = {(row.queue, row.date): row for row in ledger.collect()}
    missing = inputs.missing({day: row.covered for day, row in rows.items()})
    return [_line(day, rows.get(day), missing.get(day, 0)) for day in sorted(rows.keys() | missing.keys())]


def _line(day: QueueDay, row: Row | None, missing: int) -> LedgerLine:
    found = 0 if row is None else row.found
    parts = {name: 0 if row is None else row[name] for name in (*ask.STANDINGS, "surplus")}
    return LedgerLine(*day, accepted=found + missing, **parts, missing=missing)


def unbalanced_findings(lines: Sequence[LedgerLine], missed: int) -> Iterator[Finding]:
    """The lines that do not add up.

    The archive removed `missed` messages before an export came for them. Of these it is not known when they were
    accepted; they are named by their batches, and as long as no more are missing, no line is.
    """
    if all(line.missing >= 0 for line in lines) and sum(line.missing for line in lines) <= missed:
        return
    removed_note = f", of which up to {missed} were removed from the archive before an export" if missed else ""
    for line in lines:
        if line.missing > 0:
            what = f"{line.accepted} accepted, {line.missing} missing{removed_note}"
            yield Finding(what, queue=line.queue, day=line.date)
        elif line.missing:
            what = f"{line.accepted} accepted, {-line.missing} more found"
            yield Finding(what, queue=line.queue, day=line.date)
