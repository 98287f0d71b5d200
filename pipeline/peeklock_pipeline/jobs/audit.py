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
from peeklock_pipeline.first_batch import FirstBatch, first_batch_of
from peeklock_pipeline.jobs.archive_rows import ArchiveRows
from peeklock_pipeline.jobs.audited import Audited
from peeklock_pipeline.jobs.batch_portions import HIGHEST, LOWEST, KnownBatches
from peeklock_pipeline.jobs.batch_work import BatchWork
from peeklock_pipeline.jobs.export import require_same_database
from peeklock_pipeline.jobs.findings import Finding, LimitedFindings, limit_findings, limit_rows
from peeklock_pipeline.jobs.ledger_lines import Ledger, LedgerLine, LedgerSums
from peeklock_pipeline.jobs.senders_log import Absent, absent_from, sent_ids
from peeklock_pipeline.jobs.server_count import ServerCount
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.located_rows import located
from peeklock_pipeline.logged_files import DamagedFile
from peeklock_pipeline.plurals import messages
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.ranges import even_ranges, rows_of
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

    `ledger` has the first lines of the ledger; `unlisted_lines` follow them. `sums` are of all. `server` is what the server
    counted; None if the lake is not compared with it. Of the `expected` messages of the senders' log, `unknown` ones were not
    found, and may be among those of which only the number is known.
    """

    ledger: list[LedgerLine]
    unlisted_lines: int
    sums: LedgerSums
    server: ServerCount | None
    batches: int
    expected: int
    unknown: int
    findings: list[Finding]
    unnamed: int
    notes: AuditNotes
    messages: int = field(init=False)

    def __post_init__(self) -> None:
        """Take the messages from the ledger."""
        object.__setattr__(self, "messages", self.sums.accepted)

    def sentences(self) -> str:
        """Return the findings, and the sums of the ledger."""
        more = [f"{self.unnamed} more findings are not listed."] if self.unnamed else []
        if not self.findings and not self.notes.recorded:
            more.append("This result could not be recorded in the lake: the next audit reads the same batches again.")
        if self.unknown:
            more.append(
                f"{messages(self.unknown)} of the log were not found, and it is unknown whether they are lost: "
                "they may be among those of which only the number is known."
            )
        found = f"{len(self.findings) + self.unnamed} findings" if self.findings else "No message is lost or duplicated"
        return "\n".join([*map(str, self.findings), *more, *self.notes.sentences(), f"{found}: {self._equation()}."])

    def _equation(self) -> str:
        """Return how the accepted messages add up, and how many of them were found, if not all."""
        sums, found = self.sums, self.sums.accepted - self.sums.missing
        terms = [f"+ {getattr(sums, name)} {name.replace('_', '-')}" for name in ask.STANDINGS]
        terms += [f"- {sums.surplus} counted twice"] if sums.surplus else []
        terms += [f"+ {sums.missing} missing"] if sums.missing > 0 else []
        terms += [f"- {-sums.missing} more found than accepted"] if sums.missing < 0 else []
        if self.server is None:
            return f"{found} found = {' '.join(terms).removeprefix('+ ')}"
        between = self.server.terms(sums)
        equation = f"{self.server.accepted} accepted = {' '.join([*terms, *between]).removeprefix('+ ')}"
        return f"{equation}; {found} were found" if between else equation


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
    # What Spark keeps is released even if a task fails: it would give it to the next audit of the session.
    with task_refusals(), ExitStack() as kept:
        log = None if expect is None else _kept(sent_ids(spark, expect), kept)
        audited = Audited.of(spark, lake, record, table, from_scratch=options.from_scratch)
        kept.callback(audited.left.unpersist)
        known = KnownBatches.of(database, audited.last_batch, options.portion_batches)
        archive = ArchiveRows.of(spark, lake, table)
        read = _Messages.of(database, archive, audited, mark.number, kept)
        progress(0, STEPS)
        server, due = _server_count(spark, database, lake, table, kept)
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
        absent = _absent(log, read, audited, server, compared.unexported)
        is_sound = not any(named for named, _ in in_lake) and not is_wrong([changed, compared.found], mark.number)
        recorded = is_sound and audited.add(read.placed)
        progress(STEPS, STEPS)
    notes = AuditNotes(begun, due is not None, audited.last_batch, recorded)
    findings = _collect([*in_lake, changed, compared.found, counts, absent.lost])
    sums = (lines, ledger.count - len(lines), ledger.sums, server)
    return AuditResult(*sums, compared.batches, absent.expected, absent.unknown, *findings, notes)


@dataclass(frozen=True, slots=True)
class _Messages:
    """The messages that an audit reads (`LOCATED_ROWS`): `standings` without copies, `repeated` those that occur again."""

    archive: ArchiveRows
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
        return cls(archive, placed, standings, _kept(ask.duplicates(standings), kept))

    def ids(self, audited: Audited) -> DataFrame:
        """Return the ids of all messages, also of those in audited batches."""
        return self.placed.select("message_id").union(self.archive.ids_up_to(audited.last_batch))


def _kept(rows: DataFrame, kept: ExitStack) -> DataFrame:
    """Have Spark keep rows, so that each query is of one reading, until the end."""
    kept.callback(rows.unpersist)
    return rows.cache()


def _collect(found: Sequence[LimitedFindings]) -> tuple[list[Finding], int]:
    return [finding for group, _ in found for finding in group], sum(unnamed for _, unnamed in found)


def _findings_in_lake(audited: Audited, archive: ArchiveRows, read: _Messages) -> list[LimitedFindings]:
    """Return missing and replaced files, another number of audited messages than was recorded, and duplicates."""
    differences = list[Finding]()
    if audited.last_batch and archive.rows is not None and not archive.damaged:
        new = read.placed.where(F.col("place") == "lake").count()
        differences = [finding for finding in [audited.difference(archive.rows - new)] if finding]
    return [
        limit_findings([_file_finding(damaged) for damaged in archive.damaged]),
        limit_findings(differences),
        limit_rows(ask.message_locations(read.repeated), _duplicate_finding),
    ]


def is_wrong(found: Sequence[LimitedFindings], exported: int) -> bool:
    """Return whether findings concern exported batches, other than those that the lake can never have."""
    return any(
        unnamed
        or any(
            finding.batch is not None and finding.batch <= exported and not finding.is_unexported for finding in named
        )
        for named, unnamed in found
    )


def _server_count(
    spark: SparkSession, database: Database, lake: Lake, table: DeltaTable, kept: ExitStack
) -> tuple[ServerCount, DataFrame] | tuple[None, None]:
    """Return what the server counted, and how many messages the lake has to hold; None if it has not begun to count.

    One task reads the accounts.
    """
    if lake.table(OPENING) is None:
        return None, None
    exported = export_position_of(table).number
    accounts = rows_of(spark, [(exported, exported)], lambda number, _: database.accounts(number), ACCOUNTS)
    accounts, removed, opening = _kept(accounts, kept), lake.removed(spark, table), lake.read(spark, OPENING)
    return ServerCount.of(accounts, removed, opening), ask.expected_in_lake(accounts, removed, opening)


def _duplicate_finding(row: Row) -> Finding:
    return Finding(f"occurs {row.times} times: {row.standing}", None, row.queue, row.sequence_number, row.message_id)


def _changed_finding(row: Row) -> Finding:
    what = f"does not have the content that was accepted, in the {row.place}"
    return Finding(what, row.export_batch, row.queue, row.sequence_number, row.message_id)


def _absent(
    log: DataFrame | None, read: _Messages, audited: Audited, server: ServerCount | None, missed: int
) -> Absent:
    """Return what is missing of a senders' log. Without one, no id is read."""
    if log is None:
        return Absent()
    return absent_from(log, read.ids(audited), server.without_ids(missed) if server else missed)


def _file_finding(damaged: DamagedFile) -> Finding:
    return Finding(str(damaged), queue=damaged.file.partition.get("queue"), file=damaged.file.path)


def _stored(spark: SparkSession, database: Database, after: int) -> DataFrame:
    """Return every message row of the database but those of sealed batches up to `after` (`LOCATED_ROWS`)."""
    span = database.span()
    ranges = even_ranges(*span, RANGE_NUMBERS) if span else []
    return rows_of(spark, ranges, partial(_located, database, after), LOCATED_ROWS)


def _located(database: Database, after: int, first: int, last: int) -> Iterator[pa.Table]:
    return map(located, database.rows(first, last, after=after))
