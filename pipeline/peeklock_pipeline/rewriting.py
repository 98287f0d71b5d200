"""Rewrites files of a table on the executors: the rows of a group of files go into new ones, in one task."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from peeklock_pipeline.files import DataFile, read
from peeklock_pipeline.logged_files import LoggedFiles, require_files
from peeklock_pipeline.ranges import write_ranges
from peeklock_pipeline.storage import Storage
from peeklock_pipeline.table_specs import TableSpec

GROUP_BYTES = 128 << 20
"""The bytes of the files that one task rewrites, as they are stored."""

TASK_BYTES = 256 << 20
"""Bytes of rows that a task holds before it writes a file, uncompressed. To sort and write them it needs about three times as much."""

TASK_ROWS = 1_000_000
"""Rows that a task holds before it writes a file."""

Keep = Callable[[pa.Table], pa.Table]
"""Returns the rows that stay."""


def keep_all(rows: pa.Table) -> pa.Table:
    """Keep every row."""
    return rows


def groups_of(files: LoggedFiles, spec: TableSpec) -> Iterator[list[DataFile]]:
    """Yield the files of each partition that a table has, in groups of at most about `GROUP_BYTES`."""
    group, size = list[DataFile](), 0
    for file in files.by_partition(spec.partitions):
        if group and (_partition(file, spec) != _partition(group[0], spec) or size + file.size > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield group


def _partition(file: DataFile, spec: TableSpec) -> tuple[str, ...]:
    return tuple(file.partition[name] for name in spec.partitions)


def rewrite(
    spark: SparkSession,
    groups: Sequence[Sequence[DataFile]],
    storage: Storage,
    spec: TableSpec,
    keep: Keep = keep_all,
    place: Storage | None = None,
) -> list[DataFile]:
    """Write the rows of each group, as far as they stay, into few new files, which belong to no table yet.

    The groups are in `place`, or in the same directory. A task holds at most about `TASK_BYTES` of rows. Refuses as `write_ranges` does,
    and with `BadLake` if a file is missing or was replaced.
    """

    def rows_of_group(index: int, _: int) -> Iterator[pa.Table]:
        require_files(groups[index], place or storage)  # the new file would hide that an old one was replaced
        batches = (batch for file in groups[index] for batch in read(file, place or storage, spec.schema))
        return (kept for rows in _in_pieces(batches) if (kept := keep(rows)).num_rows)

    return write_ranges(spark, [(index, index) for index in range(len(groups))], rows_of_group, storage, spec)


def _in_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Merge batches into tables that fit into memory."""
    held: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        held.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
        if size >= TASK_BYTES or rows >= TASK_ROWS:
            yield pa.Table.from_batches(held)
            held, size, rows = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)
