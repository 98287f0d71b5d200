"""audit: proves that no message was lost and none is there twice, or names those that were and are.

The lake is held against the batches that the database has sealed, message by message where the database still has
them, and all that is known against what senders say they have sent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.columns import ARCHIVE, STANDINGS, Shape
from peeklock_pipeline.database import Batch, Database
from peeklock_pipeline.jobs.export import recognised
from peeklock_pipeline.lake import Lake, mark_of
from peeklock_pipeline.progress import Progress, unheard
from peeklock_pipeline.ranges import even, rows_of, told
from peeklock_pipeline.refusals import BadOption
from peeklock_pipeline.transforms import audit as ask

RANGE_NUMBERS = 500_000
"""Sequence numbers that one task asks the database for, unless that made too many tasks."""

MOST_NAMED = 1000
"""Findings of one kind that are named; the others are counted."""

STEPS = 4
"""The ledger, what is there twice, the batches, and the senders' log."""

COMPARED = ("sequence_number", "queue", "message_id", "export_batch")
SEALED = Shape("sealed", pa.schema([ARCHIVE.schema.field(name) for name in COMPARED]))
"""What is read again of the messages of a batch that differs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, by what it can be found by."""

    what: str
    batch: int | None = None
    queue: str | None = None
    sequence_number: int | None = None
    message_id: str | None = None

    def __str__(self) -> str:
        if self.message_id is None:
            return f"Batch {self.batch} {self.what}."
        number = f" (sequence number {self.sequence_number}, queue {self.queue})" if self.queue else ""
        return f"Message {self.message_id}{number} {self.what}."


@dataclass(frozen=True, slots=True)
class Line:
    """One queue and day of the ledger."""

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


@dataclass(frozen=True, slots=True)
class Audited:
    """What was held against each other, and what was found; `unnamed` findings more were not listed."""

    messages: int
    batches: int
    expected: int
    findings: list[Finding] = field(default_factory=list[Finding])
    unnamed: int = 0
    ledger: list[Line] = field(default_factory=list[Line])

    def sentences(self) -> str:
        """The findings, and the ledger's sums."""
        parts = [(name, sum(getattr(line, name) for line in self.ledger)) for name in ask.STANDINGS]
        counted = " + ".join(f"{count} {name.replace('_', '-')}" for name, count in parts)
        more = [f"{self.unnamed} findings more are not listed."] if self.unnamed else []
        found = (
            f"{len(self.findings) + self.unnamed} findings"
            if self.findings
            else "Nothing is lost, nothing is there twice"
        )
        sums = f"{self.messages} accepted = {counted}"
        surplus = sum(line.surplus for line in self.ledger)
        return "\n".join(
            [*map(str, self.findings), *more, f"{found}: {sums}{f' - {surplus} counted twice' * bool(surplus)}."]
        )


def audit(
    spark: SparkSession, database: Database, lake: Lake, expect: Path | None = None, progress: Progress = unheard
) -> Audited:
    """Hold lake, database and senders' log against each other.

    The log has a JSON string, or an object with `message_id`, on each line. Refuses with `DatabaseUnavailable`,
    `BadLake` and `BadOption`. Changes nothing.
    """
    table = lake.exported()
    mark = mark_of(table)
    sealed = [batch for batch in recognised(database, mark) if batch.number <= mark.number]
    archive, removed = lake.at(spark, table), lake.removed(spark, table)
    with told():
        expected = None if expect is None else _expected(spark, expect).cache()
        standings = ask.ended(archive).unionByName(_standings(spark, database, mark.number)).cache()
        repeated = ask.twofold(standings).cache()
        progress(0, STEPS)
        lines = [Line(**row.asDict()) for row in ask.ledger(standings, repeated).collect()]
        progress(1, STEPS)
        found = [_named(ask.places(repeated), _twice)]
        progress(2, STEPS)
        found.append(_batches(spark, database, sealed, archive, removed))
        progress(3, STEPS)
        sent = 0
        if expected is not None:
            found.append(_named(ask.missing(expected, standings, "message_id"), _unseen))
            sent = expected.count()
            expected.unpersist()
        repeated.unpersist()
        standings.unpersist()
        progress(STEPS, STEPS)
    findings = [finding for group, _ in found for finding in group]
    messages = sum(line.accepted for line in lines)
    return Audited(messages, len(sealed), sent, findings, sum(unnamed for _, unnamed in found), lines)


Found = tuple[list[Finding], int]
"""Findings of one kind, and how many more there are."""


def _named(found: DataFrame, name: Callable[[Row], Finding]) -> Found:
    rows = found.limit(MOST_NAMED + 1).collect()
    unnamed = found.count() - MOST_NAMED if len(rows) > MOST_NAMED else 0
    return [name(row) for row in rows[:MOST_NAMED]], unnamed


def _twice(row: Row) -> Finding:
    return Finding(f"is there {row.times} times: {row.standing}", None, row.queue, row.sequence_number, row.message_id)


def _unseen(row: Row) -> Finding:
    return Finding("was sent, and is nowhere", message_id=row.message_id)


def _standings(spark: SparkSession, database: Database, after: int) -> DataFrame:
    """Where everything stands that is not in the lake yet."""
    span = database.span()
    ranges = even(*span, RANGE_NUMBERS) if span else []
    return rows_of(spark, ranges, lambda first, last: database.standings(first, last, after), STANDINGS)


def _expected(spark: SparkSession, log: Path) -> DataFrame:
    """The message ids of a senders' log."""
    if not log.is_file():
        raise BadOption(f"There is no file {log} with the ids of sent messages.")
    lines = spark.read.text(str(log.absolute())).where("trim(value) <> ''")
    text = F.when(F.col("value").startswith('"'), F.get_json_object(F.concat(F.lit("["), "value", F.lit("]")), "$[0]"))
    ids = lines.select(F.coalesce(text, F.get_json_object("value", "$.message_id")).alias("message_id"), "value")
    if wrong := ids.where("message_id IS NULL").first():
        raise BadOption(f"{log} has a line that names no message: {wrong.value[:100]}")
    return ids.select("message_id").distinct()


def _batches(
    spark: SparkSession, database: Database, sealed: Sequence[Batch], archive: DataFrame, removed: DataFrame
) -> Found:
    """Batches that are not in the lake as they were sealed, and their messages as far as the database has them."""
    gone = removed.select(F.col("export_batch").alias("number"), "messages")
    here = ask.batches(archive).cache()  # a row a batch, which takes reading every message
    begun = here.select("number").union(gone.select("number")).agg(F.min("number")).first()
    rows = [(batch.number, batch.rows, batch.digest) for batch in sealed if begun and batch.number >= (begun[0] or 0)]
    stated = spark.createDataFrame(rows, "number bigint, row_count bigint, digest string")
    # What the database has forgotten, a year after it was removed, cannot be compared any more.
    oldest = sealed[0].number if sealed else 0
    differing = ask.differing(stated, here.where(F.col("number") >= oldest), gone.where(F.col("number") >= oldest))
    findings, unnamed = _named(differing, _batch)
    here.unpersist()
    readable = {batch.number for batch in sealed if batch.removed_at is None}
    ranges = [(one.batch, one.batch) for one in findings if one.batch is not None and one.batch in readable]
    if not ranges:
        return findings, unnamed
    source = rows_of(spark, ranges, lambda first, last: database.pieces(first, last, COMPARED), SEALED)
    lost, more = _named(ask.missing(source, archive, "sequence_number"), _lost)
    return findings + lost, unnamed + more


def _batch(row: Row) -> Finding:
    if row.row_count is None:
        return Finding(f"has {row.messages} messages in the lake, and was never sealed", row.number)
    removed = f", and {row.removed} more were removed by the lake's retention" if row.removed else ""
    what = f"has {row.messages} messages in the lake{removed}, and was sealed with {row.row_count}"
    return Finding(f"{what}: others" if row.messages == row.row_count else what, row.number)


def _lost(row: Row) -> Finding:
    return Finding("is not in the lake", row.export_batch, row.queue, row.sequence_number, row.message_id)
