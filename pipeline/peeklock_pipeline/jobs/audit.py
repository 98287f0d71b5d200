"""audit: proves that no message was lost and none is there twice, or names those that were and are.

The lake is held against the batches that the database has sealed, message by message where the database still has
them, and all that is known against what senders say they have sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.beginning import Beginning, beginning_of
from peeklock_pipeline.columns import ARCHIVE, PLACED
from peeklock_pipeline.database import Batch, Database
from peeklock_pipeline.files import DataFile, absent, listed
from peeklock_pipeline.jobs.export import recognised
from peeklock_pipeline.jobs.findings import Batches, Finding, Held, of_batches, of_list, of_rows
from peeklock_pipeline.lake import Lake, mark_of
from peeklock_pipeline.progress import Progress, unheard
from peeklock_pipeline.ranges import even, rows_of, told
from peeklock_pipeline.refusals import BadOption
from peeklock_pipeline.transforms import audit as ask

RANGE_NUMBERS = 500_000
"""Sequence numbers that one task asks the database for, unless that made too many tasks."""

STEPS = 4
"""The ledger, what is there twice, the batches, and the senders' log."""


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
    begun: Beginning = field(default_factory=lambda: Beginning(1, True))

    def sentences(self) -> str:
        """The findings, and the ledger's sums."""
        parts = [(name, sum(getattr(line, name) for line in self.ledger)) for name in ask.STANDINGS]
        counted = " + ".join(f"{count} {name.replace('_', '-')}" for name, count in parts)
        more = [f"{self.unnamed} findings more are not listed."] if self.unnamed else []
        if not self.begun.noted:
            more.append(
                f"The lake does not say with which batch it began: batches below {self.begun.number} are not compared."
            )
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
    mark, begun = mark_of(table), beginning_of(table)
    known = recognised(database, mark)
    files = listed(table)
    gone = absent(files, lake.directory(ARCHIVE))
    archive = lake.of(spark, [file for file in files if file not in gone])
    with told():
        expected = None if expect is None else _expected(spark, expect).cache()
        placed = ask.ended(archive).unionByName(_placed(spark, database)).cache()
        standings = ask.once(placed, mark.number)
        repeated = ask.twofold(standings).cache()
        progress(0, STEPS)
        lines = [Line(**row.asDict()) for row in ask.ledger(standings, repeated).collect()]
        progress(1, STEPS)
        found = [of_list([_gone(file) for file in gone]), of_rows(ask.places(repeated), _twice)]
        progress(2, STEPS)
        held = Batches(
            known,
            _listed(database),
            begun.number,
            mark.number,
            _held(placed),
            _taken(spark, lake, table),
            _missed(spark, lake),
        )
        found.append(of_batches(held, placed))
        progress(3, STEPS)
        if expected is not None:
            found.append(of_rows(ask.missing(expected, standings, "message_id"), _unseen))
        sent = 0 if expected is None else expected.count()
        progress(STEPS, STEPS)
    for cached in (repeated, placed, *([] if expected is None else [expected])):
        cached.unpersist()
    findings = [finding for group, _ in found for finding in group]
    compared = sum(begun.number <= batch.number <= mark.number for batch in known)
    return Audited(_accepted(lines), compared, sent, findings, sum(unnamed for _, unnamed in found), lines, begun)


def _accepted(lines: Sequence[Line]) -> int:
    return sum(line.accepted for line in lines)


def _listed(database: Database) -> dict[int, Batch]:
    return {batch.number: batch for batch in database.batches()}


def _taken(spark: SparkSession, lake: Lake, table: DeltaTable) -> dict[int, int]:
    return {row.number: row.messages for row in ask.taken(lake.removed(spark, table)).collect()}


def _missed(spark: SparkSession, lake: Lake) -> dict[int, int]:
    return {row.number: row.messages for row in lake.missed(spark).collect()}


def _twice(row: Row) -> Finding:
    return Finding(f"is there {row.times} times: {row.standing}", None, row.queue, row.sequence_number, row.message_id)


def _unseen(row: Row) -> Finding:
    return Finding("was sent, and is nowhere", message_id=row.message_id)


def _gone(file: DataFile) -> Finding:
    what = f"is missing from the lake or cannot be read; it held {file.rows} messages"
    return Finding(what, queue=file.partition["queue"], file=file.path)


def _placed(spark: SparkSession, database: Database) -> DataFrame:
    """Where everything stands that is in the database."""
    span = database.span()
    ranges = even(*span, RANGE_NUMBERS) if span else []
    return rows_of(spark, ranges, database.placed, PLACED)


def _held(placed: DataFrame) -> dict[tuple[str, int], Held]:
    """What lake and archive hold of each batch: a row a batch, which takes reading every message."""
    rows = ask.batches(placed.where("export_batch IS NOT NULL"), "place").collect()
    return {(row.place, row.number): Held(row.messages, row.digest) for row in rows}


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
