"""The ledger of an audit: what the server counted as accepted, and what was found, by queue and day."""

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

    `missing` messages were accepted but not found. Below zero, more were found than accepted.
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

    `accounts` are the server's counts: what it accepted, and what the database still holds. The lake's retention took
    out `removed`. `opening` were gone before the lake began to count; None if it has not begun.
    """

    accounts: Sequence[AcceptedCount]
    removed: Mapping[QueueDay, int]
    opening: Mapping[QueueDay, int] | None

    def missing(self, of_lake: Mapping[QueueDay, int]) -> dict[QueueDay, int]:
        """Return how many messages are in neither the database nor the lake, for days where this is not 0."""
        if self.opening is None:
            return {}
        left = Counter({(account.queue, account.day): account.accepted - account.held for account in self.accounts})
        for part in (of_lake, self.removed, self.opening):
            left.subtract(part)
        return {day: count for day, count in left.items() if count}


def ledger_lines(ledger: DataFrame, inputs: LedgerInputs) -> list[LedgerLine]:
    """Return the lines of a ledger with their missing messages."""
    rows: dict[QueueDay, Row] = {(row.queue, row.date): row for row in ledger.collect()}
    missing = inputs.missing({day: row.covered for day, row in rows.items()})
    return [_line(day, rows.get(day), missing.get(day, 0)) for day in sorted(rows.keys() | missing.keys())]


def _line(day: QueueDay, row: Row | None, missing: int) -> LedgerLine:
    found = 0 if row is None else row.found
    parts = {name: 0 if row is None else row[name] for name in (*ask.STANDINGS, "surplus")}
    return LedgerLine(*day, accepted=found + missing, **parts, missing=missing)


def unbalanced_findings(lines: Sequence[LedgerLine], missed: int) -> Iterator[Finding]:
    """Yield the lines that do not add up.

    The archive removed `missed` messages before an export. Their day of acceptance is unknown, so their batches are
    named instead. If no more than these are missing, no line is named.
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
