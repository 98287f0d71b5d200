"""Answers: those that stay, written by the tasks that have them as the whole of a table of the lake, and small ones."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from peeklock_pipeline.files import DataFile, write
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.table_specs import TableSpec

FILES_SCHEMA = "path string, rows bigint, size bigint"
FILES_ARROW_SCHEMA = pa.schema([("path", pa.string()), ("rows", pa.int64()), ("size", pa.int64())])

FILE_ROWS = 200_000
"""Rows that a task holds at a time and writes as one file."""


def rows(answer: DataFrame) -> list[dict[str, Any]]:
    """The rows of an answer that is bounded."""
    return [row.asDict() for row in answer.collect()]


def write_table(lake: Lake, spec: TableSpec, answer: DataFrame) -> int:
    """Make an answer the whole of an unpartitioned table; how many rows it has.

    Only the names of the files come back to the driver. Refuses with `BadLake`. A crash before the commit leaves the
    table as it was, and files that belong to nothing.
    """
    task = _task(lake.directory(spec), spec)
    files = answer.select(*spec.schema.names).mapInArrow(task, FILES_SCHEMA).collect()
    lake.replace(spec, [DataFile(file.path, {}, file.rows, file.size) for file in files])
    return sum(file.rows for file in files)


def _task(directory: Path, spec: TableSpec) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in _merge_batches(batches, spec.schema):
            written = [
                {"path": file.path, "rows": file.rows, "size": file.size} for file in write(table, directory, spec)
            ]
            yield pa.RecordBatch.from_pylist(written, schema=FILES_ARROW_SCHEMA)

    return write_rows


def _merge_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of many small batches in tables worth a file."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(one.num_rows for one in some) >= FILE_ROWS:
            yield pa.Table.from_batches(some).cast(schema)
            some = []
    if sum(one.num_rows for one in some):
        yield pa.Table.from_batches(some).cast(schema)
