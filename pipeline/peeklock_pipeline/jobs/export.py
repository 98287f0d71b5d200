"""export: what was archived since the last export goes into the lake, each message exactly once.

Sealed batches never change, so tasks may read them again; the driver commits their files once all are written. Died
before the commit: files that belong to nothing. Died after it: the next export begins behind it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pyspark.sql import SparkSession

from peeklock_pipeline.database import Batch, Database
from peeklock_pipeline.files import DataFile
from peeklock_pipeline.lake import ExportPosition, Lake
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.ranges import write_ranges
from peeklock_pipeline.refusals import BadArchive, BadLake
from peeklock_pipeline.table_specs import ARCHIVE, OPENING

TASK_ROWS = 100_000
"""Rows of one task; those of a partition go into a file, or several where they weigh much."""

COMMIT_TASKS = 64
"""Units that one commit takes, so that a first export of years is not lost with its last minute."""


@dataclass(frozen=True, slots=True)
class ExportTask:
    """Neighbouring batches that one task exports."""

    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export has brought: batches, messages and files; `missed` messages were removed before it came."""

    batches: int
    messages: int
    files: int
    missed: int
    last_batch: int


def export(spark: SparkSession, database: Database, lake: Lake, progress: Progress = no_progress) -> ExportResult:
    """Export every sealed batch that is not in the lake yet.

    Refuses with `DatabaseUnavailable`, `BadArchive` and `BadLake`; what was committed by then stays.
    """
    after = lake.export_position()
    sealed = pending_batches(database, after)
    begun = _first_batch(lake, sealed)
    if sealed and (after.number == 0 or lake.table(OPENING) is None):
        lake.record_opening(
            [one for one in database.accounts(max(after.number, begun - 1)) if one.accepted != one.held]
        )
    total = sum(batch.rows for batch in sealed)
    done = files = 0
    for portion in portions(sealed):
        exported, gone = _write(spark, database, lake, portion)
        last = ExportPosition(portion[-1].number, portion[-1].sealed_at)
        lake.record_missed({batch.number: batch.rows for batch in gone if batch.number >= begun})
        if not lake.add_batches(exported, after, last, begun):
            raise BadLake("Another export has committed to this lake meanwhile; run this one again if it should go on.")
        after, done, files = last, done + sum(file.rows for file in exported), files + len(exported)
        progress(done, total)
    return ExportResult(len(sealed), done, files, total - done, after.number)


def pending_batches(database: Database, after: ExportPosition) -> list[Batch]:
    """The sealed batches behind the last one in the lake. Refuses with `BadLake`, as `sealed_batches_after` does."""
    return [batch for batch in sealed_batches_after(database, after, after.number - 1) if batch.number > after.number]


def sealed_batches_after(database: Database, mark: ExportPosition, after: int = 0) -> list[Batch]:
    """The sealed batches behind a number, at most the last one in the lake.

    Refuses with `BadLake` where that one was sealed in another database, or in one that was set back since.
    """
    found = database.batches(max(after, 0))
    if mark.number and mark not in [ExportPosition(batch.number, batch.sealed_at) for batch in found]:
        raise BadLake(
            f"This lake holds what was exported from another database, or {database.name} was set back to an older "
            f"backup: it has no batch {mark.number} like the lake's last one. Export into another directory."
        )
    return found


def portions(sealed: Sequence[Batch]) -> Iterator[Sequence[Batch]]:
    """Batches of one commit, in order."""
    most = TASK_ROWS * COMMIT_TASKS
    begun, rows = 0, 0
    for index, batch in enumerate(sealed):
        if rows and rows + batch.rows > most:
            yield sealed[begun:index]
            begun, rows = index, 0
        rows += batch.rows
    if sealed:
        yield sealed[begun:]


def export_tasks(batches: Sequence[Batch], most: int = TASK_ROWS) -> list[ExportTask]:
    """Batches whose rows are there gathered, in order, into units of about `most` rows."""
    gathered: list[ExportTask] = []
    for there, neighbours in groupby(batches, lambda batch: batch.removed_at is None):
        for batch in neighbours if there else ():
            begun = gathered[-1] if gathered else ExportTask(0, 0, most)
            if begun.last + 1 == batch.number and begun.rows + batch.rows <= most:
                gathered[-1] = ExportTask(begun.first, batch.number, begun.rows + batch.rows)
            else:
                gathered.append(ExportTask(batch.number, batch.number, batch.rows))
    return gathered


def _first_batch(lake: Lake, sealed: Sequence[Batch]) -> int:
    """The first batch of a lake; for one that begins now, the first of these whose messages are in the archive."""
    if found := lake.first_batch():
        return found.number
    return next((batch.number for batch in sealed if batch.removed_at is None), sealed[-1].number + 1 if sealed else 1)


def _write(
    spark: SparkSession, database: Database, lake: Lake, portion: Sequence[Batch]
) -> tuple[list[DataFile], list[Batch]]:
    """Have the executors write the messages of these batches; the files belong to nothing yet.

    Also returns the batches that were already removed. Where batches were removed while they were read, it is done
    again without them.
    """
    work = export_tasks(portion)
    ranges = [(unit.first, unit.last) for unit in work]
    files = write_ranges(spark, ranges, database.chunks, lake.directory(ARCHIVE), ARCHIVE)
    found, expected = sum(file.rows for file in files), sum(unit.rows for unit in work)
    if found == expected:
        return files, [batch for batch in portion if batch.removed_at is not None]
    now = [batch for batch in database.batches(portion[0].number - 1) if batch.number <= portion[-1].number]
    if now == list(portion):
        raise BadArchive(
            f"The batches {portion[0].number} to {portion[-1].number} of {database.name} were sealed with {expected} "
            f"messages, and there are {found}. None of them was exported."
        )
    return _write(spark, database, lake, now)
