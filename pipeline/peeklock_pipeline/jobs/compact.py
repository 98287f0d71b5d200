"""compact and vacuum: merge small files, and remove files that belong to no table."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow.fs import FileSystem
from pyspark.sql import SparkSession

from peeklock_pipeline.files import DataFile
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import LoggedFiles, files_of
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.refusals import BadOption
from peeklock_pipeline.rewriting import TASK_ROWS, groups_of, rewrite
from peeklock_pipeline.storage import Storage
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


VACUUM_FILES = 200
"""Files that a vacuum removes before it reads the table's log again, which takes one request."""

REMOVERS = 16
"""Files that are removed at the same time, because an object store takes some milliseconds for each."""


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
    tables = [(spec, files_of(table)) for spec in COMPACTED if (table := lake.table(spec)) is not None]
    small = [(small_files(files), lake.layout(spec)) for spec, files in tables]
    before, total = (
        sum(len(files) for _, files in tables),
        sum(len(group) for one in small for group in mergeable(*one)),
    )
    added = removed = 0
    for files, spec in small:
        groups = mergeable(files, spec)
        while some := [*islice(groups, COMMIT_TASKS)]:
            progress(removed, total)
            merged = [file for group in some for file in group]
            written = rewrite(spark, some, lake.directory(spec), spec)
            lake.exchange(spec, Change(written, merged, moves_rows=True))
            added, removed = added + len(written), removed + len(merged)
    progress(total, total)
    return CompactResult(before - removed + added, before)


def small_files(files: LoggedFiles) -> LoggedFiles:
    """Return the files that are merged with others.

    A file with as many rows as a task holds is not small, however well it is compressed.
    """
    rows = pc.field("rows")
    return files.where((pc.field("size") < SMALL_BYTES) & (rows.is_null() | (rows < TASK_ROWS)))


def mergeable(small: LoggedFiles, spec: TableSpec) -> Iterator[list[DataFile]]:
    """Group small files by partition, and leave out those that are alone."""
    return (group for group in groups_of(small, spec) if len(group) > 1)


def vacuum(lake: Lake, older_than: timedelta = timedelta(days=7), progress: Progress = no_progress) -> VacuumResult:
    """Remove files in the directories of tables that belong to no table and are older than `older_than`.

    A commit may add old files meanwhile, such as that of a job that took longer. So the table's log is read again before
    each portion of files. Only a commit in the moment between that and the removal is not seen. Refuses with `BadOption`
    below an hour, because younger files may belong to a running export. Refuses with `BadLake` and `LakeUnavailable`.
    """
    if older_than < MIN_AGE:
        raise BadOption("Files younger than an hour may belong to a running export: choose --older-than 1h or more.")
    return remove_unreferenced(lake, math.ceil(older_than / timedelta(hours=1)), progress)


def remove_unreferenced(lake: Lake, hours: int, progress: Progress = no_progress) -> VacuumResult:
    """Remove files of this age that belong to no table, as `vacuum` does. Young files may belong to a running job."""
    results = [_vacuum_table(directory, table, hours, progress) for directory, table in lake.tables()]
    return VacuumResult(sum(done.files for done in results), sum(done.bytes for done in results))


def _vacuum_table(directory: Storage, table: DeltaTable, hours: int, progress: Progress) -> VacuumResult:
    filesystem, files, size = directory.filesystem(), 0, 0
    with directory.refusals(), ThreadPoolExecutor(REMOVERS) as removers:
        listed = _unreferenced_files(table, hours)
        for begun in range(0, len(listed), VACUUM_FILES):
            progress(begun, len(listed))
            unreferenced = _still_unreferenced(table, listed[begun : begun + VACUUM_FILES], hours)
            found = filesystem.get_file_info(unreferenced)
            removed = list(removers.map(partial(_remove, filesystem), unreferenced))
            files += sum(removed)
            size += sum(info.size or 0 for info, is_removed in zip(found, removed, strict=True) if is_removed)
        progress(len(listed), len(listed))
    return VacuumResult(files, size)


def _remove(filesystem: FileSystem, file: str) -> bool:
    """Remove a file; return False if another vacuum has done so."""
    try:
        filesystem.delete_file(file)
    except FileNotFoundError:
        return False
    return True


def _still_unreferenced(table: DeltaTable, files: Sequence[str], hours: int) -> list[str]:
    """Return those of these files that still belong to no table, after any commit since the table was read."""
    known = table.version()
    table.update_incremental()
    if table.version() == known:
        return [*files]
    latest = {*_unreferenced_files(table, hours)}
    return [file for file in files if file in latest]


def _unreferenced_files(table: DeltaTable, hours: int) -> list[str]:
    return table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
