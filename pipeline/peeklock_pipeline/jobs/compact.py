"""compact and vacuum: merge small files, and remove files that belong to no table."""

import math
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from peeklock_pipeline.lake import Lake
from peeklock_pipeline.refusals import BadLake, BadOption

TARGET_BYTES = 256 << 20
"""The largest size of a merged file."""

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


def compact(lake: Lake) -> CompactResult:
    """Rewrite the files of each queue and day as few large ones; the messages stay the same.

    One commit. A crash before it leaves files that belong to no table. Refuses with `BadLake`.
    """
    table = lake.archive_table()
    before = len(table.file_uris())
    try:
        table.optimize.compact(
            target_size=TARGET_BYTES, writer_properties=WriterProperties(compression="ZSTD", compression_level=1)
        )
    except CommitFailedError as error:
        raise BadLake(f"{lake.root} was changed by another job meanwhile; run this one again.") from error
    return CompactResult(len(table.file_uris()), before)


def vacuum(lake: Lake, older_than: timedelta = timedelta(days=7)) -> VacuumResult:
    """Remove files in the directories of tables that belong to no table and are older than `older_than`.

    Refuses with `BadOption` below an hour, because younger files may belong to a running export. Refuses with
    `BadLake`.
    """
    if older_than < MIN_AGE:
        raise BadOption("Files younger than an hour may belong to a running export: choose --older-than 1h or more.")
    hours = math.ceil(older_than / timedelta(hours=1))
    files = [
        _place(table) / file for table in lake.tables() for file in _unreferenced_files(table, hours, dry_run=True)
    ]
    size = sum(file.stat().st_size for file in files)
    for table in lake.tables():
        _unreferenced_files(table, hours, dry_run=False)
    return VacuumResult(len(files), size)


def _unreferenced_files(table: DeltaTable, hours: int, *, dry_run: bool) -> list[str]:
    return table.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True)


def _place(table: DeltaTable) -> Path:
    return Path(unquote(urlsplit(table.table_uri).path))
