"""Results of queries: written by tasks as a whole table of the lake, or small ones collected on the driver."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from peeklock_pipeline.files import LISTING, DataFile, listed, listing, write
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.storage import Storage
from peeklock_pipeline.table_specs import TableSpec

FILE_ROWS = 200_000
"""Rows that a task holds at a time and writes to one file."""


def rows(answer: DataFrame) -> list[dict[str, Any]]:
    """Collect the rows of a small result."""
    return [row.asDict() for row in answer.collect()]


def write_table(lake: Lake, spec: TableSpec, answer: DataFrame) -> int:
    """Replace an unpartitioned table with a result, and return its number of rows.

    Refuses with `BadLake`. A crash before the commit leaves the table unchanged, and files that belong to no table.
    """
    files = write_files(lake, spec, answer)
    lake.replace(spec, files)
    return sum(file.rows for file in files)


def write_files(lake: Lake, spec: TableSpec, answer: DataFrame) -> list[DataFile]:
    """Have tasks write a result to files of an unpartitioned table, which belong to no table until a commit adds them.

    Only the names of the files return to the driver.
    """
    task = _task(lake.directory(spec), spec)
    return listed(answer.select(*spec.schema.names).mapInArrow(task, LISTING).collect())


def _task(directory: Storage, spec: TableSpec) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in _merge_batches(batches, spec.schema):
            yield listing(write(table, directory, spec))

    return write_rows


def _merge_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Merge many small batches into tables of about one file."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(batch.num_rows for batch in some) >= FILE_ROWS:
            yield pa.Table.from_batches(some).cast(schema)
            some = []
    if sum(batch.num_rows for batch in some):
        yield pa.Table.from_batches(some).cast(schema)
