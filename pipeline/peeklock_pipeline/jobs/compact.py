"""compact and vacuum: merge small files, and remove files that belong to no table."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from peeklock_pipeline.files import DataFile, portions_of
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.refusals import BadOption
from peeklock_pipeline.rewriting import TASK_ROWS, groups_of, rewrite
from peeklock_pipeline.table_specs import ARCHIVE, MISSED, REMOVED, REPLAYS, TableSpec
from peeklock_pipeline.tables import Change

COMPACTED = (ARCHIVE, REPLAYS, MISSED, REMOVED)
"""The tables to which jobs append; the others are replaced as a whole."""

SMALL_BYTES = 8 << 20
"""A smaller file is merged with others of its partition. Merged files are larger, unless their rows are compressed to less
than a thirtieth."""

COMMIT_TASKS = 64
"""Tasks of one commit. A crash during a first compaction then loses only the last commit."""

MIN_AGE = timedelta(hours=1)
"""Younger files may belong to an export that has not committed yet, or be in use by a reader that began before."""


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The number of files before and after."""

    files: int
    files_before: int


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The number of removed files, and their bytes."""

    files: int
    bytes: int


def compact(spark: SparkSession, lake: Lake, progress: Progress = no_progress) -> CompactResult:
    """Merge small files of each partition on the executors; the rows stay the same.

    Exports may commit meanwhile. The job may crash anywhere and be repeated: each commit merges some files, and before
    it the merged ones belong to no table. Refuses with `BadLake` and `LakeUnavailable`.
    """
    lake.archive_table()
    tables = [(spec, *_small_files(table)) for spec in COMPACTED if (table := lake.table(spec)) is not None]
    plans = [(spec, groups) for spec, small, _ in tables for groups in _commits(mergeable(small, lake.layout(spec)))]
    added = removed = 0
    for done, (spec, groups) in enumerate(plans):
        progress(done, len(plans))
        merged = [file for group in groups for file in group]
        written = rewrite(spark, groups, lake.directory(spec), lake.layout(spec))
        lake.exchange(spec, Change(written, merged, moves_rows=True))
        added, removed = added + len(written), removed + len(merged)
    progress(len(plans), len(plans))
    before = sum(count for *_, count in tables)
    return CompactResult(before - removed + added, before)


def _small_files(table: DeltaTable) -> tuple[list[DataFile], int]:
    """Return the small files of a table, and the number of all of its files."""
    small, count = list[DataFile](), 0
    for files in portions_of(table):
        small += [file for file in files if is_small(file)]
        count += len(files)
    return small, count


def is_small(file: DataFile) -> bool:
    """Return whether a file is merged with others.

    A file with as many rows as a task holds is not small, however well it is compressed.
    """
    return file.size < SMALL_BYTES and file.rows < TASK_ROWS


def mergeable(files: Sequence[DataFile], spec: TableSpec) -> list[list[DataFile]]:
    """Group the small files of each partition."""
    return [group for group in groups_of(filter(is_small, files), spec) if len(group) > 1]


def _commits(groups: Sequence[Sequence[DataFile]]) -> Iterator[Sequence[Sequence[DataFile]]]:
    for begun in range(0, len(groups), COMMIT_TASKS):
        yield groups[begun : begun + COMMIT_TASKS]


def vacuum(lake: Lake, older_than: timedelta = timedelta(days=7)) -> VacuumResult:
    """Remove files in the directories of tables that belong to no table and are older than `older_than`.

    Refuses with `BadOption` below an hour, because younger files may belong to a running export. Refuses with
    `BadLake` and `LakeUnavailable`.
    """
    if older_than < MIN_AGE:
        raise BadOption("Files younger than an hour may belong to a running export: choose --older-than 1h or more.")
    hours = math.ceil(older_than / timedelta(hours=1))
    files = size = 0
    for directory, table in lake.tables():
        with directory.refusals():
            unreferenced = _unreferenced_files(table, hours, dry_run=True)
            found = directory.filesystem().get_file_info(unreferenced)
            _unreferenced_files(table, hours, dry_run=False)
        files, size = files + len(unreferenced), size + sum(info.size or 0 for info in found)
    return VacuumResult(files, size)


def _unreferenced_files(table: DeltaTable, hours: int, *, dry_run: bool) -> list[str]:
    return table.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
