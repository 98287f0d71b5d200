"""export: copies what was archived since the last export into the lake, each message exactly once.

Sealed batches never change, so a task may read them again. The driver commits the files once all are written. A crash
before the commit leaves files that belong to no table. After a crash behind the commit, the next export begins there.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
from pyspark.sql import SparkSession

from peeklock_pipeline.database import Batch, Database, PendingBatches
from peeklock_pipeline.files import DataFile
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.ranges import write_ranges
from peeklock_pipeline.refusals import BadArchive, BadLake
from peeklock_pipeline.row_checksums import with_checksums
from peeklock_pipeline.table_specs import ARCHIVE, OPENING
from peeklock_pipeline.tables import ExportPosition

TASK_ROWS = 100_000
"""Rows of one task. Each partition gets one file, or several if its rows are large."""

COMMIT_ROWS = 64 * TASK_ROWS
"""Rows of one commit. A crash during a first export of years then loses only the last commit."""

LISTED_BATCHES = 10_000
"""Batches that the driver holds at a time, and that one commit adds at most. Batches may be small."""


@dataclass(frozen=True, slots=True)
class ExportTask:
    """Neighbouring batches that one task exports."""

    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The batches, messages and files of an export.

    `missed` messages were removed before it ran. Of these, the lake records those `missed_since_begun`, which are of
    batches since its first one.
    """

    batches: int
    messages: int
    files: int
    missed: int
    last_batch: int
    missed_since_begun: int = 0


def export(
    spark: SparkSession,
    database: Database,
    lake: Lake,
    progress: Progress = no_progress,
    commit_rows: int = COMMIT_ROWS,
) -> ExportResult:
    """Export every sealed batch that is not in the lake yet, with about `commit_rows` rows in each commit.

    Refuses with `DatabaseUnavailable`, `BadArchive` and `BadLake`; what is committed by then stays.
    """
    after = lake.export_position()
    require_same_database(database, after)
    pending = database.pending(after.number)
    begun = _first_batch(database, lake, pending)
    if pending.batches and (after.number == 0 or lake.table(OPENING) is None):
        lake.record_opening(database.accounts(max(after.number, begun - 1)))
    done = files = missed = recorded = 0
    for portion in portions(_listed(database, after.number, pending.last), commit_rows):
        exported, gone = _write(spark, database, lake, portion)
        last = ExportPosition(portion[-1].number, portion[-1].sealed_at)
        since_begun = {batch.number: batch.rows for batch in gone if batch.number >= begun}
        lake.record_missed(since_begun)
        if not lake.add_batches(exported, after, last, begun):
            raise BadLake("Another export has committed to this lake meanwhile; run this one again to continue.")
        after, done, files = last, done + sum(file.rows for file in exported), files + len(exported)
        missed, recorded = missed + sum(batch.rows for batch in gone), recorded + sum(since_begun.values())
        progress(done, pending.rows)
    return ExportResult(pending.batches, done, files, missed, after.number, recorded)


def require_same_database(database: Database, mark: ExportPosition) -> None:
    """Refuse with `BadLake` if the lake's last batch was sealed in another database, or the database was restored to an
    earlier state since."""
    found = database.batches(mark.number - 1, mark.number) if mark.number else []
    if mark.number and mark not in [ExportPosition(batch.number, batch.sealed_at) for batch in found]:
        raise BadLake(
            f"This lake holds what was exported from another database, or {database.name} was restored from an older "
            f"backup: it has no batch {mark.number} like the lake's last one. Export into another directory."
        )


def missed_messages(lake: Lake) -> int:
    """Return how many messages of batches since the lake's first one were removed before an export.

    The lake records them, also those of an export that was killed then.
    """
    begun = lake.first_batch()
    return sum(rows for number, rows in lake.missed().items() if begun and number >= begun.number)


def _listed(database: Database, after: int, last: int) -> Iterator[Batch]:
    """Yield the batches after a number up to the last one, `LISTED_BATCHES` listed at a time."""
    while listed := database.batches(after, last, LISTED_BATCHES):
        yield from listed
        after = listed[-1].number


def portions(sealed: Iterable[Batch], most: int = COMMIT_ROWS) -> Iterator[Sequence[Batch]]:
    """Yield the batches of each commit, in order: at most `most` rows and `LISTED_BATCHES` batches, or a single batch."""
    portion, rows = list[Batch](), 0
    for batch in sealed:
        if portion and (rows + batch.rows > most or len(portion) == LISTED_BATCHES):
            yield portion
            portion, rows = [], 0
        portion.append(batch)
        rows += batch.rows
    if portion:
        yield portion


def export_tasks(batches: Sequence[Batch], most: int = TASK_ROWS) -> list[ExportTask]:
    """Group the batches that still have rows, in order, into tasks of about `most` rows."""
    gathered: list[ExportTask] = []
    for there, neighbours in groupby(batches, lambda batch: batch.removed_at is None):
        for batch in neighbours if there else ():
            begun = gathered[-1] if gathered else ExportTask(0, 0, most)
            if begun.last + 1 == batch.number and begun.rows + batch.rows <= most:
                gathered[-1] = ExportTask(begun.first, batch.number, begun.rows + batch.rows)
            else:
                gathered.append(ExportTask(batch.number, batch.number, batch.rows))
    return gathered


def _first_batch(database: Database, lake: Lake, pending: PendingBatches) -> int:
    """Return the first batch of a lake; of a new lake, the first of which the archive has the messages."""
    if found := lake.first_batch():
        return found.number
    return database.first_kept_batch() or pending.last + 1


def _write(
    spark: SparkSession, database: Database, lake: Lake, portion: Sequence[Batch]
) -> tuple[list[DataFile], list[Batch]]:
    """Have the executors write the messages of these batches to files, which belong to no table yet.

    Also returns the batches that were already removed. If batches are removed during the read, it starts again without
    them.
    """
    work = export_tasks(portion)
    ranges = [(unit.first, unit.last) for unit in work]

    def read(first: int, last: int) -> Iterator[pa.Table]:
        return map(with_checksums, database.chunks(first, last))

    files = write_ranges(spark, ranges, read, lake.directory(ARCHIVE), lake.layout(ARCHIVE))
    found, expected = sum(file.rows for file in files), sum(unit.rows for unit in work)
    if found == expected:
        return files, [batch for batch in portion if batch.removed_at is not None]
    now = database.batches(portion[0].number - 1, portion[-1].number)
    if now == list(portion):
        raise BadArchive(
            f"The batches {portion[0].number} to {portion[-1].number} of {database.name} were sealed with {expected} "
            f"messages, and there are {found}. None of them was exported."
        )
    return _write(spark, database, lake, now)
