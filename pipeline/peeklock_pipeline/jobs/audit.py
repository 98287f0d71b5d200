"""audit: proves that no message was lost and none is there twice, or names those that were and are.

The lake is compared with the batches that the database has sealed, message by message where the database still has
them, and all that is known with what senders say they have sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.beginning import Beginning, beginning_of
from peeklock_pipeline.columns import ARCHIVE, STORED_ROWS
from peeklock_pipeline.database import Batch, Database
from peeklock_pipeline.files import DataFile, absent, listed
from peeklock_pipeline.jobs.accounts import Books, Line, settled, wrong
from peeklock_pipeline.jobs.export import recognised
from peeklock_pipeline.jobs.findings import Batches, Finding, Found, Held, of_batches, of_list, of_rows
from peeklock_pipeline.lake import Lake, mark_of
from peeklock_pipeline.progress import Progress, unheard
from peeklock_pipeline.ranges import even, rows_of, told
from peeklock_pipeline.refusals import BadOption
from peeklock_pipeline.transforms import audit as ask
from peeklock_pipeline.words import messages

RANGE_NUMBERS = 500_000
"""Sequence numbers that one task asks the database for, unless that made too many tasks."""

STEPS = 4
"""The ledger, what is there twice, the batches, and the senders' log."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What the lake itself knows: where it begins, and whether it was compared with the server's counts."""

    begun: Beginning
    counted: bool

    def sentences(self) -> list[str]:
        """What an audit could not compare."""
        begun = f"The lake does not say with which batch it began: batches below {self.begun.number} are not compared."
        counted = (
            "The lake has no table `opening` yet: its messages are not compared with the server's counts. "
            "The next export writes it."
        )
        return [*([] if self.begun.noted else [begun]), *([] if self.counted else [counted])]


@dataclass(frozen=True, slots=True)
class Audited:
    """What was compared, and what was found; `unnamed` more findings were not listed."""

    ledger: list[Line]
    batches: int
    expected: int
    findings: list[Finding]
    unnamed: int
    notes: Notes
    messages: int = field(init=False)

    def __post_init__(self) -> None:
        """Add up the messages of the ledger."""
        object.__setattr__(self, "messages", sum(line.accepted for line in self.ledger))

    def sentences(self) -> str:
        """The findings, and the ledger's sums."""
        parts = [(name, sum(getattr(line, name) for line in self.ledger)) for name in ask.STANDINGS]
        counted = " + ".join(f"{count} {name.replace('_', '-')}" for name, count in parts)
        more = [f"{self.unnamed} more findings are not listed."] if self.unnamed else []
        found = (
            f"{len(self.findings) + self.unnamed} findings"
            if self.findings
            else "Nothing is lost, nothing is there twice"
        )
        sums = f"{self.messages} accepted = {counted}"
        for name, sign, words in (("surplus", "-", "counted twice"), ("missing", "+", "missing")):
            if count := sum(getattr(line, name) for line in self.ledger):
                sums += f" {sign} {count} {words}"
        return "\n".join([*map(str, self.findings), *more, *self.notes.sentences(), f"{found}: {sums}."])


def audit(
    spark: SparkSession, database: Database, lake: Lake, expect: Path | None = None, progress: Progress = unheard
) -> Audited:
    """Compare lake, database and senders' log with each other.

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
        books = _books(spark, database, lake, table)
        placed = ask.ended(archive).unionByName(ask.digested(_stored(spark, database))).cache()
        standings = ask.once(placed, mark.number)
        repeated = ask.twofold(standings).cache()
        progress(0, STEPS)
        lines = settled(ask.ledger(standings, repeated), books)
        progress(1, STEPS)
        found = [of_list([_gone(file) for file in gone]), of_rows(ask.places(repeated), _twice)]
        found.append(of_rows(ask.changed(placed), _changed))
        progress(2, STEPS)
        notes = (_taken(spark, lake, table), lake.missed())
        held = Batches(known, _listed(database), begun.number, mark.number, _held(placed), *notes)
        found.append(of_batches(held, placed, lambda numbers: _pairs(spark, database, archive, numbers)))
        found.append(of_list([*wrong(lines, held.unexported())]))
        progress(3, STEPS)
        if expected is not None:
            found.append(of_rows(ask.missing(expected, placed, "message_id"), _unseen))
        sent = 0 if expected is None else expected.count()
        progress(STEPS, STEPS)
    for cached in (repeated, placed, *([] if expected is None else [expected])):
        cached.unpersist()
    return Audited(lines, held.compared(), sent, *_together(found), Notes(begun, books.opening is not None))


def _together(found: Sequence[Found]) -> tuple[list[Finding], int]:
    return [finding for group, _ in found for finding in group], sum(unnamed for _, unnamed in found)


def _books(spark: SparkSession, database: Database, lake: Lake, table: DeltaTable) -> Books:
    """What was accepted, and what of it need not be found."""
    removed = ask.left(lake.removed(spark, table)).collect()
    return Books(
        database.accounts(mark_of(table).number),
        {(row.queue, row.date): row.messages for row in removed},
        lake.opening(),
    )


def _pairs(spark: SparkSession, database: Database, archive: DataFrame, numbers: Sequence[int]) -> DataFrame:
    """The messages of these batches that the lake has differently from the archive, which is read again."""
    ranges = [(number, number) for number in numbers]
    return ask.unlike(
        archive.where(F.col("export_batch").isin(*numbers)), rows_of(spark, ranges, database.pieces, ARCHIVE)
    )


def _listed(database: Database) -> dict[int, Batch]:
    return {batch.number: batch for batch in database.batches()}


def _taken(spark: SparkSession, lake: Lake, table: DeltaTable) -> dict[int, int]:
    return {row.number: row.messages for row in ask.taken(lake.removed(spark, table)).collect()}


def _twice(row: Row) -> Finding:
    return Finding(f"is there {row.times} times: {row.standing}", None, row.queue, row.sequence_number, row.message_id)


def _unseen(row: Row) -> Finding:
    return Finding("was sent, but is missing", message_id=row.message_id)


def _changed(row: Row) -> Finding:
    what = f"does not have the content that was accepted, in the {row.place}"
    return Finding(what, row.export_batch, row.queue, row.sequence_number, row.message_id)


def _gone(file: DataFile) -> Finding:
    what = f"is missing from the lake or cannot be read; it held {messages(file.rows)}"
    return Finding(what, queue=file.partition["queue"], file=file.path)


def _stored(spark: SparkSession, database: Database) -> DataFrame:
    """Every row of a message that is in the database."""
    span = database.span()
    ranges = even(*span, RANGE_NUMBERS) if span else []
    return rows_of(spark, ranges, database.rows, STORED_ROWS)


def _held(placed: DataFrame) -> dict[tuple[str, int], Held]:
    """What lake and archive hold of each batch: a row a batch, which takes reading every message."""
    rows = ask.batches(placed.where("export_batch IS NOT NULL"), "place").collect()
    return {(row.place, row.number): Held(row.messages, row.numbers, row.rows) for row in rows}


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
