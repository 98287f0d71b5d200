"""Writes Arrow tables as Parquet files, in the task that has the rows. A later commit adds the files to a table."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileSystem
from pyspark.sql import Row

from peeklock_pipeline.plurals import messages
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.storage import Storage
from peeklock_pipeline.table_specs import TableSpec

COMPRESSION = "zstd"

ROW_GROUP_ROWS = 25_000
"""Rows of one row group. Rows are ordered by queue, so a reader of one queue skips most groups of a file."""

ROW_GROUP_BYTES = 64 << 20
"""Bytes of rows of one row group, uncompressed: Arrow needs about four times as much to write it, and reads it as a whole."""

MILLISECOND = timedelta(milliseconds=1)

FOOTER_READERS = 16
"""Footers that are read at the same time, because an object store answers each after milliseconds."""

LISTERS = 16
"""Directories that are listed at the same time, for the same reason."""

PORTION_FILES = 10_000
"""Files of a table that a job holds at a time if it looks at all of them."""

LOGGED_COLUMNS = ("path", "num_records", "size_bytes")

Value = int | str | date | datetime

NO_BOUNDS: Mapping[str, tuple[Value, Value]] = MappingProxyType({})


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
        parquet = pq.ParquetFile(stream)
        stored = [name for name in schema.names if name in parquet.schema_arrow.names]
        for group in range(parquet.num_row_groups):  # a batch of all would be as large as its rows are
            for batch in parquet.iter_batches(ROW_GROUP_ROWS, [group], columns=stored):
                columns = [_column(field, batch, file.partition) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(field: pa.Field, batch: pa.RecordBatch, partition: Mapping[str, str]) -> pa.Array:
    """Return a column. The partition in the table's log counts, also if the file has such a column itself."""
    if field.name in partition:
        value: Any = pa.scalar(partition[field.name], pa.string()).cast(field.type)
        return pa.repeat(value, batch.num_rows)
    if field.name in batch.schema.names:
        return batch.column(field.name).cast(field.type)
    return pa.nulls(batch.num_rows, field.type)


def files_of(table: DeltaTable, within: Mapping[str, tuple[Value, Value]] = NO_BOUNDS) -> list[DataFile]:
    """Return the files of a table at its opened version, from its log, ordered by path.

    `within` names columns with a lowest and a highest value: files that have no such row, by their partition or their
    statistics, are left out. Files without statistics of a column are returned.
    """
    return [file for portion in portions_of(table, within) for file in portion]


def portions_of(
    table: DeltaTable, within: Mapping[str, tuple[Value, Value]] = NO_BOUNDS, size: int = PORTION_FILES
) -> Iterator[list[DataFile]]:
    """Yield what `files_of` returns, in the same order, at most `size` files at a time.

    deltalake holds the log, about a kilobyte for each file. A `DataFile` needs as much again, and more time.
    """
    rows = pa.table(table.get_add_actions(flatten=True))
    for name, (low, high) in within.items():
        least, most = _bounds(name, rows)
        if least and most:
            outside: Any = pc.or_kleene(pc.greater(rows[least], pa.scalar(high)), pc.less(rows[most], pa.scalar(low)))
            rows = rows.filter(pc.invert(outside.fill_null(False)))
    used = [name for name in rows.column_names if name in LOGGED_COLUMNS or name.startswith("partition.")]
    rows = rows.select(used).sort_by("path")
    for begun in range(0, rows.num_rows, size):
        yield [
            DataFile(row["path"], _partition(row), row["num_records"] or 0, row["size_bytes"])
            for row in rows.slice(begun, size).to_pylist()
        ]


def paths_of(table: DeltaTable, paths: Set[str]) -> set[str]:
    """Return those of these paths that are files of a table at its opened version."""
    present: Any = pa.table(table.get_add_actions())["path"]
    return set(present.filter(pc.is_in(present, value_set=pa.array(paths, pa.string()))).to_pylist())


def _bounds(name: str, rows: pa.Table) -> tuple[str, str] | tuple[None, None]:
    """Return the columns of a log that bound a column of the table."""
    for least, most in ((f"partition.{name}", f"partition.{name}"), (f"min.{name}", f"max.{name}")):
        if least in rows.column_names and most in rows.column_names:
            return least, most
    return None, None


def _partition(row: Mapping[str, Any]) -> dict[str, str]:
    return {name.removeprefix("partition."): str(row[name]) for name in row if name.startswith("partition.")}


def missing_files(files: Sequence[DataFile], storage: Storage) -> list[DataFile]:
    """Return the files that do not exist or have no readable footer. Their rows are lost."""
    filesystem = storage.filesystem()
    with ThreadPoolExecutor(FOOTER_READERS) as readers:
        readable = readers.map(lambda file: _is_readable(file.path, filesystem), files)
        return [file for file, is_readable in zip(files, readable, strict=True) if not is_readable]


def require_files(files: Sequence[DataFile], storage: Storage) -> None:
    """Refuse with `BadLake` if one of the files does not exist or has no readable footer."""
    if gone := missing_files(files, storage):
        raise BadLake(
            f"{storage}/{gone[0].path} is missing or cannot be read, and holds {messages(gone[0].rows)} "
            "of the lake; `peeklock-pipeline audit` names what is lost."
        )


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


def _is_readable(path: str, filesystem: FileSystem) -> bool:
    try:
        with filesystem.open_input_file(path) as stream:
            pq.read_metadata(stream)
    except (OSError, pa.ArrowInvalid):
        return False
    return True


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
