"""The ledger of an audit: what the server counted as accepted, and what was found, by queue and day.

Spark holds its lines. The driver has their sums, the first of them, and a bounded number of those that do not add up.
"""

from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from peeklock_pipeline.jobs.findings import Finding, LimitedFindings, limit_rows
from peeklock_pipeline.transforms import audit as ask

MAX_LINES = 10_000
"""Lines of a ledger that a result lists; the others are counted."""

SUMS = ("accepted", *ask.STANDINGS, "surplus", "missing", "uncounted")
"""The counts of a line."""


@dataclass(frozen=True, slots=True)
class LedgerSums:
    """Messages of all lines of a ledger, or of one.

    `accepted` messages of queues with an archive were found, or are `missing`. If that is below zero, more were found than
    accepted. `uncounted` ones are from servers that did not count what they accepted.
    """

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
    uncounted: int


@dataclass(frozen=True, slots=True)
class LedgerLine(LedgerSums):
    """One queue and day of a ledger."""

    queue: str
    date: date


@dataclass(frozen=True, slots=True)
class Ledger:
    """The lines of a ledger (`transforms.audit.ledger_lines`), their number and their sums.

    `is_exceeded` tells that more messages of a line were found than accepted.
    """

    lines: DataFrame
    count: int
    sums: LedgerSums
    is_exceeded: bool

    @classmethod
    def of(cls, lines: DataFrame) -> "Ledger":
        """Add up the lines. The caller has Spark keep them (`cache`), so that each sum and line is of one reading."""
        sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in SUMS]
        exceeded = F.count_if(F.col("missing") < 0).alias("exceeded")
        [row] = lines.agg(F.count("*").alias("lines"), exceeded, *sums).collect()
        return cls(lines, row.lines, LedgerSums(*(row[name] for name in SUMS)), row.exceeded > 0)

    def first(self, most: int = MAX_LINES) -> list[LedgerLine]:
        """Return the first lines, ordered by queue and day."""
        rows = self.lines.orderBy("queue", "date").limit(most).collect()
        return [LedgerLine(*(row[name] for name in SUMS), queue=row.queue, date=row.date) for row in rows]

    def unbalanced(self, missed: int) -> LimitedFindings:
        """Return the lines that do not add up.

        The archive removed `missed` messages before an export. Their day of acceptance is unknown, so their batches are
        named instead. If no more than these are missing, no line is named.
        """
        if not self.is_exceeded and self.sums.missing <= missed:
            return [], 0
        note = f", of which up to {missed} were removed from the archive before an export" if missed else ""

        def named(row: Row) -> Finding:
            what = f"{row.missing} missing{note}" if row.missing > 0 else f"{-row.missing} more found"
            return Finding(f"{row.accepted} accepted, {what}", queue=row.queue, day=row.date)

        return limit_rows(self.lines.where("missing <> 0").orderBy("queue", "date"), named)
