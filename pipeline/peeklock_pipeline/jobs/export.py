"""export: what was archived since the last export goes into the lake, each message exactly once.

Sealed batches never change, so tasks may read them again; the driver commits their files once all are written. Died
before the commit: files that belong to nothing. Died after it: the next export begins behind it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pyspark.sql import SparkSession

from peeklock_pipeline.columns import ARCHIVE, OPENING
from peeklock_pipeline.database import Batch, Database
from peeklock_pipeline.files import DataFile
from peeklock_pipeline.lake import Lake, Mark
from peeklock_pipeline.progress import Progress, unheard
from peeklock_pipeline.ranges import write_ranges
from peeklock_pipeline.refusals import BadArchive, BadLake

UNIT_ROWS = 100_000
"""Rows of one task; those of a partition go into a file, or several where they weigh much."""

COMMIT_UNITS = 64
"""Units that one commit takes, so that a first export of years is not lost with its last minute."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Neighbouring batches that one task exports."""

    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export has brought: batches, messages and files; `missed` messages were removed before it came."""

    batches: int
    messages: int
    files: int
    missed: int
    last_batch: int


def export(spark: SparkSession, database: Database, lake: Lake, progress: Progress = unheard) -> Exported:
    """Export every sealed batch that is not in the lake yet.

    Refuses with `DatabaseUnavailable`, `BadArchive` and `BadLake`; what was committed by then stays.
    """
    after = lake.mark()
    sealed = pending(database, after)
    begun = _begun(lake, sealed)
    if sealed and (after.number == 0 or lake.table(OPENING) is None):
        lake.open_accounts([one for one in database.accounts(max(after.number, begun - 1)) if one.accepted != one.held])
    total = sum(batch.rows for batch in sealed)
    done = files = 0
    for portion in portions(sealed):
        exported, gone = _write(spark, database, lake, portion)
        last = Mark(portion[-1].number, portion[-1].sealed_at)
        lake.miss({batch.number: batch.rows for batch in gone if batch.number >= begun})
        if not lake.add_batches(exported, after, last, begun):
            raise BadLake("Another export has committed to this lake meanwhile; run this one again if it should go on.")
        after, done, files = last, done + sum(file.rows for file in exported), files + len(exported)
        progress(done, total)
    return Exported(len(sealed), done, files, total - done, after.number)


def pending(database: Database, after: Mark) -> list[Batch]:
    """The sealed batches behind the last one in the lake. Refuses with `BadLake`, as `recognised` does."""
    return [batch for batch in recognised(database, after, after.number - 1) if batch.number > after.number]


def recognised(database: Database, mark: Mark, after: int = 0) -> list[Batch]:
    """The sealed batches behind a number, at most the last one in the lake.

    Refuses with `BadLake` where that one was sealed in another database, or in one that was set back since.
    """
    found = database.batches(max(after, 0))
    if mark.number and mark not in [Mark(batch.number, batch.sealed_at) for batch in found]:
        raise BadLake(
            f"This lake holds what was exported from another database, or {database.name} was set back to an older "
            f"backup: it has no batch {mark.number} like the lake's last one. Export into another directory."
        )
    return found


def portions(sealed: Sequence[Batch]) -> Iterator[Sequence[Batch]]:
    """Batches of one commit, in order."""
    most = UNIT_ROWS * COMMIT_UNITS
    begun, rows = 0, 0
    for index, batch in enumerate(sealed):
        if rows and rows + batch.rows > most:
            yield sealed[begun:index]
            begun, rows = index, 0
        rows += batch.rows
    if sealed:
        yield sealed[begun:]


def units(batches: Sequence[Batch], most: int = UNIT_ROWS) -> list[Unit]:
    """Batches whose rows are there gathered, in order, into units of about `most` rows."""
    gathered: list[Unit] = []
    for there, neighbours in groupby(batches, lambda batch: batch.removed_at is None):
        for batch in neighbours if there else ():
            begun = gathered[-1] if gathered else Unit(0, 0, most)
            if begun.last + 1 == batch.number and begun.rows + batch.rows <= most:
                gathered[-1] = Unit(begun.first, batch.number, begun.rows + batch.rows)
            else:
                gathered.append(Unit(batch.number, batch.number, batch.rows))
    return gathered


def _begun(lake: Lake, sealed: Sequence[Batch]) -> int:
    """The first batch of a lake; for one that begins now, the first of these whose messages are in the archive."""
    if found := lake.beginning():
        return found.number
    return next((batch.number for batch in sealed if batch.removed_at is None), sealed[-1].number + 1 if sealed else 1)


def _write(
    spark: SparkSession, database: Database, lake: Lake, portion: Sequence[Batch]
) -> tuple[list[DataFile], list[Batch]]:
    """Have the executors write the messages of these batches; the files belong to nothing yet.

    Also returns the batches that were already removed. Where batches were removed while they were read, it is done
    again without them.
    """
    work = units(portion)
    ranges = [(unit.first, unit.last) for unit in work]
    files = write_ranges(spark, ranges, database.pieces, lake.directory(ARCHIVE), ARCHIVE)
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
