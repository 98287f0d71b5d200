"""audit: proves that no message is lost or duplicated, or names the messages that are.

It compares the lake with the batches that the database has sealed, message by message while the database still has
them. It compares all known messages with the senders' log.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.database import Batch, Database
from peeklock_pipeline.files import DataFile, files_of, missing_files
from peeklock_pipeline.first_batch import FirstBatch, first_batch_of
from peeklock_pipeline.jobs.export import sealed_batches_after
from peeklock_pipeline.jobs.findings import (
    BatchComparison,
    BatchContents,
    Finding,
    LimitedFindings,
    batch_contents,
    batch_findings,
    limit_findings,
    limit_rows,
)
from peeklock_pipeline.jobs.ledger_lines import LedgerInputs, LedgerLine, ledger_lines, unbalanced_findings
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.plurals import messages
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.ranges import Range, even_ranges, rows_of, task_refusals
from peeklock_pipeline.refusals import BadOption
from peeklock_pipeline.table_specs import ARCHIVE, EVENTS, STORED_ROWS
from peeklock_pipeline.tables import export_position_of
from peeklock_pipeline.transforms import audit as ask

RANGE_NUMBERS = 500_000
"""Sequence numbers that one task reads from the database. More, if this made too many tasks."""

STEPS = 4
"""The ledger, the duplicates, the batches, and the senders' log."""


@dataclass(frozen=True, slots=True)
class AuditNotes:
    """What the lake records about itself: its first batch, and whether it was compared with the server's counts."""

    begun: FirstBatch
    counted: bool

    def sentences(self) -> list[str]:
        """Name what the audit could not compare."""
        begun = f"The lake does not record its first batch: batches below {self.begun.number} are not compared."
        counted = (
            "The lake has no table `opening` yet: its messages are not compared with the server's counts. "
            "The next export writes it."
        )
        return [*([] if self.begun.noted else [begun]), *([] if self.counted else [counted])]


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What was compared, and the findings; `unnamed` more findings are not listed."""

    ledger: list[LedgerLine]
    batches: int
    expected: int
    findings: list[Finding]
    unnamed: int
    notes: AuditNotes
    messages: int = field(init=False)

    def __post_init__(self) -> None:
        """Add up the messages of the ledger."""
        object.__setattr__(self, "messages", sum(line.accepted for line in self.ledger))

    def sentences(self) -> str:
        """Return the findings, and the sums of the ledger."""
        parts = [(name, sum(getattr(line, name) for line in self.ledger)) for name in ask.STANDINGS]
        counted = " + ".join(f"{count} {name.replace('_', '-')}" for name, count in parts)
        more = [f"{self.unnamed} more findings are not listed."] if self.unnamed else []
        found = f"{len(self.findings) + self.unnamed} findings" if self.findings else "No message is lost or duplicated"
        sums = f"{self.messages} accepted = {counted}"
        for name, sign, words in (("surplus", "-", "counted twice"), ("missing", "+", "missing")):
            if count := sum(getattr(line, name) for line in self.ledger):
                sums += f" {sign} {count} {words}"
        return "\n".join([*map(str, self.findings), *more, *self.notes.sentences(), f"{found}: {sums}."])


def audit(
    spark: SparkSession, database: Database, lake: Lake, expect: Path | None = None, progress: Progress = no_progress
) -> AuditResult:
    """Compare the lake, the database and the senders' log.

    Each line of the log is a JSON string, or an object with `message_id`. Refuses with `DatabaseUnavailable`,
    `BadLake` and `BadOption`. Changes nothing.
    """
    table = lake.archive_table()
    mark, begun = export_position_of(table), first_batch_of(table, lake.directory(ARCHIVE))
    known = sealed_batches_after(database, mark)
    files = files_of(table)
    gone = missing_files(files, lake.directory(ARCHIVE))
    archive = lake.read_files(spark, [file for file in files if file not in gone])
    with task_refusals():
        expected = None if expect is None else _expected(spark, expect).cache()
        books = _ledger_inputs(spark, database, lake, table)
        placed = ask.archived_rows(archive).unionByName(ask.with_digests(_stored(spark, database))).cache()
        standings = ask.unique_messages(placed, mark.number)
        repeated = ask.duplicates(standings).cache()
        progress(0, STEPS)
        lines = ledger_lines(ask.ledger(standings, repeated), books)
        progress(1, STEPS)
        found = [
            limit_findings([_missing_file_finding(file) for file in gone]),
            limit_rows(ask.message_locations(repeated), _duplicate_finding),
        ]
        found.append(limit_rows(ask.changed_contents(placed), _changed_finding))
        progress(2, STEPS)
        notes = (_removed_counts(spark, lake, table), lake.missed())
        contents = _batch_contents(placed, ask.archived_events(archive).unionByName(_stored_events(spark, database)))
        # Listed after its rows and events were read, which finds the batches that were removed meanwhile.
        comparison = BatchComparison(known, _listed(database), begun.number, mark.number, contents, *notes)
        found.append(batch_findings(comparison, placed, lambda numbers: _pairs(spark, database, archive, numbers)))
        found.append(limit_findings([*unbalanced_findings(lines, comparison.unexported())]))
        progress(3, STEPS)
        if expected is not None:
            found.append(limit_rows(ask.missing(expected, placed, "message_id"), _unknown_finding))
        sent = 0 if expected is None else expected.count()
        progress(STEPS, STEPS)
    for cached in (repeated, placed, *([] if expected is None else [expected])):
        cached.unpersist()
    return AuditResult(
        lines, comparison.compared(), sent, *_collect(found), AuditNotes(begun, books.opening is not None)
    )


def _collect(found: Sequence[LimitedFindings]) -> tuple[list[Finding], int]:
    return [finding for group, _ in found for finding in group], sum(unnamed for _, unnamed in found)


def _ledger_inputs(spark: SparkSession, database: Database, lake: Lake, table: DeltaTable) -> LedgerInputs:
    """Return what was accepted, and the part of it that is rightly absent."""
    removed = ask.removed_by_day(lake.removed(spark, table)).collect()
    return LedgerInputs(
        database.accounts(export_position_of(table).number),
        {(row.queue, row.date): row.messages for row in removed},
        lake.opening(),
    )


def _pairs(spark: SparkSession, database: Database, archive: DataFrame, numbers: Sequence[int]) -> DataFrame:
    """Read these batches again, and return the messages that differ between lake and archive."""
    ranges = [(number, number) for number in numbers]
    return ask.differing_rows(
        archive.where(F.col("export_batch").isin(*numbers)), rows_of(spark, ranges, database.chunks, ARCHIVE)
    )


def _listed(database: Database) -> dict[int, Batch]:
    return {batch.number: batch for batch in database.batches()}


def _removed_counts(spark: SparkSession, lake: Lake, table: DeltaTable) -> dict[int, int]:
    return {row.number: row.messages for row in ask.removed_by_batch(lake.removed(spark, table)).collect()}


def _duplicate_finding(row: Row) -> Finding:
    return Finding(f"occurs {row.times} times: {row.standing}", None, row.queue, row.sequence_number, row.message_id)


def _unknown_finding(row: Row) -> Finding:
    return Finding("was sent, but is missing", message_id=row.message_id)


def _changed_finding(row: Row) -> Finding:
    what = f"does not have the content that was accepted, in the {row.place}"
    return Finding(what, row.export_batch, row.queue, row.sequence_number, row.message_id)


def _missing_file_finding(file: DataFile) -> Finding:
    what = f"is missing from the lake or cannot be read; it held {messages(file.rows)}"
    return Finding(what, queue=file.partition.get("queue"), file=file.path)


def _stored(spark: SparkSession, database: Database) -> DataFrame:
    """Return every message row of the database."""
    return rows_of(spark, _number_ranges(database), database.rows, STORED_ROWS)


def _stored_events(spark: SparkSession, database: Database) -> DataFrame:
    """Return the digests of every event of a sealed message of the database."""
    return ask.event_digests(rows_of(spark, _number_ranges(database), database.events, EVENTS), "archive")


def _number_ranges(database: Database) -> list[Range]:
    span = database.span()
    return even_ranges(*span, RANGE_NUMBERS) if span else []


def _batch_contents(placed: DataFrame, events: DataFrame) -> dict[tuple[str, int], BatchContents]:
    """Read every message, and return the contents of each batch in lake and archive."""
    rows = ask.batches(placed.where("export_batch IS NOT NULL"), events).collect()
    return {(row.place, row.number): batch_contents(row) for row in rows}


def _expected(spark: SparkSession, log: Path) -> DataFrame:
    """Return the message ids of a senders' log."""
    if not log.is_file():
        raise BadOption(f"No file {log} with the ids of sent messages exists.")
    lines = spark.read.text(str(log.absolute())).where("trim(value) <> ''")
    text = F.when(F.col("value").startswith('"'), F.get_json_object(F.concat(F.lit("["), "value", F.lit("]")), "$[0]"))
    ids = lines.select(F.coalesce(text, F.get_json_object("value", "$.message_id")).alias("message_id"), "value")
    if wrong := ids.where("message_id IS NULL").first():
        raise BadOption(f"{log} has a line that names no message: {wrong.value[:100]}")
    return ids.select("message_id").distinct()
