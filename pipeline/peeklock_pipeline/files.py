"""Writes Arrow tables as Parquet files, in the task that has the rows. A later commit adds the files to a table."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem
from pyspark.sql import Row

from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.storage import Storage
from peeklock_pipeline.table_specs import TableSpec

COMPRESSION = "zstd"

ROW_GROUP_ROWS = 25_000
"""Rows of one row group. Rows are ordered by queue, so a reader of one queue skips most groups of a file."""

ROW_GROUP_BYTES = 64 << 20
"""Bytes of rows of one row group, uncompressed: Arrow needs about four times as much to write it, and reads it as a whole."""

MILLISECOND = timedelta(milliseconds=1)

LISTERS = 16
"""Directories that are listed at the same time, because an object store answers each after milliseconds."""

Value = int | str | date | datetime
"""A value of a column by which readers choose files."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table: its path below the table, its partition, rows and bytes.

    `statistics` is what the table's log says about its rows, as JSON; empty for files that are in the log.
    """

    path: str
    partition: Mapping[str, str]
    rows: int
    size: int
    statistics: str = ""


LISTING = "path string, partition map<string,string>, rows bigint, size bigint, statistics string"
"""The columns in which tasks return files to the driver."""

LISTING_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("partition", pa.map_(pa.string(), pa.string())),
        ("rows", pa.int64()),
        ("size", pa.int64()),
        ("statistics", pa.string()),
    ]
)


def listing(files: Iterable[DataFile]) -> pa.RecordBatch:
    """Return files as a task returns them."""
    rows = [
        {name: getattr(file, name) for name in LISTING_SCHEMA.names} | {"partition": list(file.partition.items())}
        for file in files
    ]
    return pa.RecordBatch.from_pylist(rows, schema=LISTING_SCHEMA)


def listed(rows: Iterable[Row]) -> list[DataFile]:
    """Return the files that tasks have returned."""
    return [DataFile(row.path, row.partition, row.rows, row.size, row.statistics) for row in rows]


def write(table: pa.Table, storage: Storage, spec: TableSpec) -> Iterator[DataFile]:
    """Write rows to files, one for each partition, in the order of the table's `sort_columns`.

    The rows are sorted once and cut where the partition changes: to select each partition's rows costs as much for
    every partition as for all.
    """
    partitions = list(spec.partitions)
    ascending: Any = [(name, "ascending") for name in (*partitions, *spec.sort_columns)]
    ordered = table.sort_by(ascending) if ascending else table
    counted = ordered.group_by(partitions, use_threads=False).aggregate([([], "count_all")]).to_pylist()
    filesystem, begun = storage.filesystem(), 0
    for run in counted if partitions else [{"count_all": ordered.num_rows}]:
        rows = ordered.slice(begun, run["count_all"])
        begun += rows.num_rows
        values = {name: str(run[name]) for name in partitions}
        # A day, or the name of a queue with letters, digits and "._-" only, is a valid name of a directory.
        path = "/".join([*(f"{name}={value}" for name, value in values.items()), f"{uuid4().hex}.parquet"])
        size = _write_file(rows.drop_columns(partitions), filesystem, path, storage)
        yield DataFile(path, values, rows.num_rows, size, _statistics(rows, spec))


def _write_file(rows: pa.Table, filesystem: FileSystem, path: str, storage: Storage) -> int:
    with storage.refusals(path):
        if storage.is_local:
            Path(str(storage), path).parent.mkdir(parents=True, exist_ok=True)
        with filesystem.open_output_stream(path) as stream:
            pq.write_table(rows, stream, compression=COMPRESSION, row_group_size=_row_group_rows(rows))
            return stream.tell()


def _row_group_rows(rows: pa.Table) -> int:
    return max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES * rows.num_rows // max(rows.nbytes, 1)))


def read(file: DataFile, storage: Storage, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in these columns, at most one row group at a time; columns that the file does not have are null.

    Refuses with `LakeUnavailable`.
    """
    with storage.refusals(file.path), storage.filesystem().open_input_file(file.path) as stream:
        # With the buffer, the columns of a row group are read together, and not one by one.
        parquet = pq.ParquetFile(stream, pre_buffer=True)
        present = parquet.schema_arrow.names
        if len({*present}) < len(present):
            raise pa.ArrowInvalid("two of its columns have one name")
        stored = [name for name in schema.names if name in present]
        for group in range(parquet.num_row_groups):  # a batch of all would be as large as its rows are
            for batch in parquet.iter_batches(ROW_GROUP_ROWS, [group], columns=stored, use_threads=False):
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                values = [_column(field, columns, batch.num_rows, file.partition) for field in schema]
                yield pa.RecordBatch.from_arrays(values, schema=schema)


def _column(field: pa.Field, columns: Mapping[str, pa.Array], rows: int, partition: Mapping[str, str]) -> pa.Array:
    """Return a column. The partition in the table's log counts, even if the file has such a column itself."""
    if field.name in partition:
        value: Any = pa.scalar(partition[field.name], pa.string()).cast(field.type)
        return pa.repeat(value, rows)
    if field.name not in columns:
        return pa.nulls(rows, field.type)
    found = columns[field.name]
    return found if found.type == field.type else found.cast(field.type)


def require_uncommitted(files: Sequence[DataFile], storage: Storage) -> None:
    """Refuse with `BadLake` if one of the files was removed before a commit could add it.

    Lists each directory once: an object store answers a listing of a thousand files as fast as a question about one.
    """
    filesystem, directories = storage.filesystem(), sorted({_directory(file.path) for file in files})
    with storage.refusals(), ThreadPoolExecutor(LISTERS) as listers:
        present = set().union(*listers.map(lambda directory: _paths_in(directory, filesystem), directories))
    if gone := [file.path for file in files if file.path not in present]:
        raise BadLake(
            f"{storage}/{gone[0]} was removed before this job could commit it, as by a vacuum with an age below the time "
            "that this job takes. Nothing was committed: run this job again, and vacuum with a larger --older-than."
        )


def _directory(path: str) -> str:
    return path.rpartition("/")[0]


def _paths_in(directory: str, filesystem: FileSystem) -> set[str]:
    found = filesystem.get_file_info(FileSelector(directory, allow_not_found=True))
    return {"/".join([*directory.split("/"), info.base_name]).lstrip("/") for info in found}


def _statistics(rows: pa.Table, spec: TableSpec) -> str:
    """Return the number of rows, and the lowest and highest value of each column by which readers choose files."""
    found: dict[str, Any] = {
        name: pc.min_max(rows[name]).as_py() for name in spec.statistics if name in rows.column_names
    }
    known = {name: ends for name, ends in found.items() if ends["min"] is not None}
    lowest = {name: _logged(ends["min"]) for name, ends in known.items()}
    highest = {name: _logged(ends["max"], rounded_up=True) for name, ends in known.items()}
    return json.dumps({"numRecords": rows.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": {}})


def _logged(value: Value, *, rounded_up: bool = False) -> int | str:
    """Return a value as a log has it. A log has times in milliseconds, so an upper bound is rounded up."""
    if not isinstance(value, datetime):
        return value if isinstance(value, int | str) else value.isoformat()
    later = value + MILLISECOND if rounded_up and value.microsecond % 1000 else value
    return f"{later:%Y-%m-%dT%H:%M:%S}.{later.microsecond // 1000:03d}Z"
