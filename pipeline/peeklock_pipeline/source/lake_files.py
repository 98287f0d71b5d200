"""Files of a lake's archive: which of them may have rows, by the table's log, and their rows."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from peeklock_pipeline.conditions import Condition, microseconds
from peeklock_pipeline.files import DataFile
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import COLUMNS, PARTITION, PORTION_FILES
from peeklock_pipeline.source.origins import CHUNK_ROWS
from peeklock_pipeline.table_specs import ARCHIVE

LOG_PRECISION = 1000
"""Microseconds to which the statistics of a Delta log may cut the fraction of a time."""

ONE_DAY = 86_400_000_000


def files_with(table: DeltaTable, conditions: Sequence[Condition]) -> list[DataFile]:
    """Return the files in which a row may meet all conditions, ordered by path.

    Uses what the log says of each file. A file of which it does not say enough is returned.
    """
    actions = pa.table(table.get_add_actions(flatten=True))
    for condition in conditions:
        actions = _with_batches(actions, condition)
    bounds = {f"{end}.{condition.column}" for condition in conditions for end in ("min", "max")}
    used = [name for name in actions.column_names if name in {*COLUMNS, *bounds} or name.startswith(PARTITION)]
    listed, starts = actions.select(used), range(0, actions.num_rows, PORTION_FILES)
    rows = (row for begun in starts for row in listed.slice(begun, PORTION_FILES).to_pylist())
    chosen = (row for row in rows if all(_may_hold(one, row) for one in conditions))
    files = (DataFile(row["path"], _partition(row), row["num_records"] or 0, row["size_bytes"]) for row in chosen)
    return sorted(files, key=lambda file: file.path)


def _with_batches(actions: pa.Table, condition: Condition) -> pa.Table:
    """Return the files that may have batches from or up to a number, compared as columns, because there may be many."""
    end = {">=": "max.export_batch", "<=": "min.export_batch"}.get(condition.operator)
    if condition.column != "export_batch" or end not in actions.column_names:
        return actions
    field: Any = ds.field(end)
    holds = field >= condition.values[0] if condition.operator == ">=" else field <= condition.values[0]
    return actions.filter(field.is_null() | holds)


def rows_of_files(
    lake: Lake, files: Sequence[DataFile], columns: Sequence[str], chosen: ds.Expression
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of these files for which the expression holds. Columns that a file does not have are null."""
    place = lake.directory(ARCHIVE).filesystem()
    parquet = ds.ParquetFileFormat()
    fragments = [parquet.make_fragment(file.path, place, _expression(file)) for file in files]
    dataset = ds.FileSystemDataset(fragments, ARCHIVE.schema, parquet, place)
    scanner = dataset.scanner(
        columns=list(columns), filter=chosen, batch_size=CHUNK_ROWS, batch_readahead=1, fragment_readahead=1
    )
    yield from (batch for batch in scanner.to_batches() if batch.num_rows)


def _may_hold(condition: Condition, row: Mapping[str, Any]) -> bool:
    bounds = _bounds(condition.column, row)
    return bounds is None or condition.may_hold(*bounds)


def _bounds(column: str, row: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """Return the lowest and highest value of a column in a file, as conditions have them; None if unknown."""
    if (value := row.get(f"partition.{column}")) is not None:
        return value, value
    low, high = row.get(f"min.{column}"), row.get(f"max.{column}")
    if low is None or high is None:
        return _bounds_of_day(column, row)
    if isinstance(low, datetime) and isinstance(high, datetime):
        return microseconds(low), microseconds(high) + LOG_PRECISION
    return low, high


def _bounds_of_day(column: str, row: Mapping[str, Any]) -> tuple[int, int] | None:
    if column != "settled_at" or (given := row.get("partition.date")) is None:
        return None
    day = date.fromisoformat(str(given))
    return microseconds(day), microseconds(day) + ONE_DAY - 1


def _partition(row: Mapping[str, Any]) -> dict[str, str]:
    return {name.removeprefix(PARTITION): str(row[name]) for name in row if name.startswith(PARTITION)}


def _expression(file: DataFile) -> ds.Expression:
    """Return what all rows of a file have in common."""
    values = {name: date.fromisoformat(value) if name == "date" else value for name, value in file.partition.items()}
    equal = [ds.field(name) == pa.scalar(value) for name, value in values.items()]
    return reduce(and_, equal, ds.scalar(True))
