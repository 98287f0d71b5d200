"""audit: proves that no message is lost or duplicated, or names the messages that are.

It compares the lake with the batches that the database has sealed, message by message while the database still has
them. It reads the batches that no earlier audit has found sound, or all of them, and counts all. It compares all known
messages with the senders' log.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.database import Database
from peeklock_pipeline.files import DataFile
from peeklock_pipeline.first_batch import FirstBatch, first_batch_of
from peeklock_pipeline.jobs.archive_rows import ArchiveRows
from peeklock_pipeline.jobs.audited import Audited
from peeklock_pipeline.jobs.batch_portions import HIGHEST, LOWEST, KnownBatches
from peeklock_pipeline.jobs.batch_work import BatchWork
from peeklock_pipeline.jobs.export import require_same_database
from peeklock_pipeline.jobs.findings import Finding, LimitedFindings, limit_findings, limit_rows
from peeklock_pipeline.jobs.ledger_lines import Ledger, LedgerLine, LedgerSums
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.located_rows import located
from peeklock_pipeline.plurals import messages
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.ranges import even_ranges, rows_of
from peeklock_pipeline.refusals import BadOption
from peeklock_pipeline.table_specs import ACCOUNTS, ARCHIVE, AUDITED, LOCATED_ROWS, OPENING
from peeklock_pipeline.tables import export_position_of
from peeklock_pipeline.task_refusals import task_refusals
from peeklock_pipeline.transforms import audit as ask

RANGE_NUMBERS = 500_000
"""Sequence numbers that one task reads from the database. More, if this made too many tasks."""

STEPS = 4
"""The ledger, the duplicates, the batches, and the senders' log."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """How much an audit reads: all messages, or those that no earlier audit has found sound.

    The driver holds the digests of `portion_batches` batches at a time.
    """

    from_scratch: bool = False
    portion_batches: int = 10_000


WHAT_IS_NEW, FROM_SCRATCH = AuditOptions(), AuditOptions(from_scratch=True)


@dataclass(frozen=True, slots=True)
class AuditNotes:
    """What the lake records about itself: its first batch, and whether it was compared with the server's counts.

    Batches up to `audited` were found sound by an earlier audit, and not read again. `recorded` tells whether the next
    audit begins after the batches of this one.
    """

    begun: FirstBatch
    counted: bool
    audited: int
    recorded: bool

    def sentences(self) -> list[str]:
        """Name what the audit could not compare, and what it did not read again."""
        notes = {
            f"The lake does not record its first batch: batches below {self.begun.number} are not compared.": (
                not self.begun.noted
            ),
            "The lake has no table `opening` yet: its messages are not compared with the server's counts. "
            "The next export writes it.": not self.counted,
            f"Batches up to {self.audited} were found sound earlier, and are counted but not read again; "
            "--from-scratch reads them.": self.audited > 0,
        }
        return [note for note, applies in notes.items() if applies]


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What was compared, and the findings; `unnamed` more findings are not listed. `batches` are those read.

    `ledger` has the first lines of the ledger; `unlisted_lines` follow them. `sums` are of all.
    """

    ledger: list[LedgerLine]
    unlisted_lines: int
    sums: LedgerSums
    batches: int
    expected: int
    findings: list[Finding]
    unnamed: int
    notes: AuditNotes
    messages: int = field(init=False)

    def __post_init__(self) -> None:
        """Take the messages from the ledger."""
        object.__setattr__(self, "messages", self.sums.accepted)

    def sentences(self) -> str:
        """Return the findings, and the sums of the ledger."""
        parts = [f"{getattr(self.sums, name)} {name.replace('_', '-')}" for name in ask.STANDINGS]
        more = [f"{self.unnamed} more findings are not listed."] if self.unnamed else []
        if not self.findings and not self.notes.recorded:
            more.append("This result could not be recorded in the lake: the next audit reads the same batches again.")
        found = f"{len(self.findings) + self.unnamed} findings" if self.findings else "No message is lost or duplicated"
        sums = f"{self.messages} accepted = {' + '.join(parts)}"
        for name, sign, words in (("surplus", "-", "counted twice"), ("missing", "+", "missing")):
            if count := getattr(self.sums, name):
                sums += f" {sign} {count} {words}"
        return "\n".join([*map(str, self.findings), *more, *self.notes.sentences(), f"{found}: {sums}."])


def audit(
    spark: SparkSession,
    database: Database,
    lake: Lake,
    expect: Path | None = None,
    progress: Progress = no_progress,
    options: AuditOptions = WHAT_IS_NEW,
) -> AuditResult:
    """Compare the lake, the database and the senders' log.

    Each line of the log is a JSON string, or an object with `message_id`. Exported batches that no audit has found
    sound are read, or all of them if `options` demand it; counts are of all. Records which batches it has found sound,
    and changes nothing else. Refuses with `DatabaseUnavailable`, `BadLake` and `BadOption`.
    """
    record, table = lake.table(AUDITED), lake.archive_table()
    mark, begun = export_position_of(table), first_batch_of(table, lake.directory(ARCHIVE))
    require_same_database(database, mark)
    # What Spark keeps is released also if a task fails: it would give it to the next audit of the session.
    with task_refusals(), ExitStack() as kept:
        log = None if expect is None else _kept(_expected(spark, expect), kept)
        audited = Audited.of(spark, lake, record, table, from_scratch=options.from_scratch)
        kept.callback(audited.left.unpersist)
        known = KnownBatches.of(database, audited.last_batch, options.portion_batches)
        archive = ArchiveRows.of(spark, lake, table)
        read = _Messages.of(database, archive, audited, mark.number, kept)
        progress(0, STEPS)
        due = _expected_in_lake(spark, database, lake, table)
        found = ask.with_earlier(ask.ledger(read.standings, read.repeated), audited.left)
        ledger = Ledger.of(_kept(ask.ledger_lines(found, due), kept))
        progress(1, STEPS)
        in_lake = _findings_in_lake(audited, archive, read)
        changed = limit_rows(ask.changed_contents(read.placed), _changed_finding)
        progress(2, STEPS)
        work = BatchWork(spark, database, archive, read.placed, lake.removed(spark, table), lake.missed())
        compared = work.compared(known, begun.number, mark.number, options.portion_batches)
        counts, lines = ledger.unbalanced(compared.unexported), ledger.first()
        progress(3, STEPS)
        unknown, sent = _unknown(log, read, archive, audited.last_batch)
        is_sound = not any(named for named, _ in in_lake) and not is_wrong([changed, compared.found], mark.number)
        recorded = is_sound and audited.add(read.placed)
        progress(STEPS, STEPS)
    notes = AuditNotes(begun, due is not None, audited.last_batch, recorded)
    findings = _collect([*in_lake, changed, compared.found, counts, unknown])
    return AuditResult(lines, ledger.count - len(lines), ledger.sums, compared.batches, sent, *findings, notes)


@dataclass(frozen=True, slots=True)
class _Messages:
    """The messages that an audit reads (`LOCATED_ROWS`): `standings` without copies, `repeated` those that occur again."""

    placed: DataFrame
    standings: DataFrame
    repeated: DataFrame

    @classmethod
    def of(
        cls, database: Database, archive: ArchiveRows, audited: Audited, exported: int, kept: ExitStack
    ) -> "_Messages":
        """Read messages of batches that are not audited, and of the queues. Refuses with `DatabaseUnavailable`."""
        new = archive.located(audited.last_batch or LOWEST, HIGHEST)
        placed = _kept(new.unionByName(_stored(archive.spark, database, audited.last_batch)), kept)
        standings = ask.unique_messages(placed, exported)
        return cls(placed, standings, _kept(ask.duplicates(standings), kept))


def _kept(rows: DataFrame, kept: ExitStack) -> DataFrame:
    """Have Spark keep rows, so that each query is of one reading, until the end."""
    kept.callback(rows.unpersist)
    return rows.cache()


def _collect(found: Sequence[LimitedFindings]) -> tuple[list[Finding], int]:
    return [finding for group, _ in found for finding in group], sum(unnamed for _, unnamed in found)


def _findings_in_lake(audited: Audited, archive: ArchiveRows, read: _Messages) -> list[LimitedFindings]:
    """Return missing files, another number of audited messages than was recorded, and duplicates."""
    differences = list[Finding]()
    if audited.last_batch and archive.rows is not None and not archive.gone:
        new = read.placed.where(F.col("place") == "lake").count()
        differences = [finding for finding in [audited.difference(archive.rows - new)] if finding]
    return [
        limit_findings([_missing_file_finding(file) for file in archive.gone]),
        limit_findings(differences),
        limit_rows(ask.message_locations(read.repeated), _duplicate_finding),
    ]


def _unknown(
    expected: DataFrame | None, read: _Messages, archive: ArchiveRows, audited: int
) -> tuple[LimitedFindings, int]:
    """Return the messages of a senders' log that are nowhere, and how many the log has."""
    if expected is None:
        return ([], 0), 0
    ids = read.placed.select("message_id").union(archive.ids_up_to(audited))
    return limit_rows(ask.missing(expected, ids, "message_id"), _unknown_finding), expected.count()


def is_wrong(found: Sequence[LimitedFindings], exported: int) -> bool:
    """Return whether findings concern exported batches, other than those that the lake can never have."""
    return any(
        unnamed
        or any(
            finding.batch is not None and finding.batch <= exported and not finding.is_unexported for finding in named
        )
        for named, unnamed in found
    )


def _expected_in_lake(spark: SparkSession, database: Database, lake: Lake, table: DeltaTable) -> DataFrame | None:
    """Return how many messages the lake has to hold; None if it has not begun to count. One task reads the accounts."""
    if lake.table(OPENING) is None:
        return None
    exported = export_position_of(table).number
    accounts = rows_of(spark, [(exported, exported)], lambda number, _: database.accounts(number), ACCOUNTS)
    return ask.expected_in_lake(accounts, lake.removed(spark, table), lake.read(spark, OPENING))


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


def _stored(spark: SparkSession, database: Database, after: int) -> DataFrame:
    """Return every message row of the database but those of sealed batches up to `after` (`LOCATED_ROWS`)."""
    span = database.span()
    ranges = even_ranges(*span, RANGE_NUMBERS) if span else []
    return rows_of(spark, ranges, partial(_located, database, after), LOCATED_ROWS)


def _located(database: Database, after: int, first: int, last: int) -> Iterator[pa.Table]:
    return map(located, database.rows(first, last, after=after))


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
