"""Writes Arrow tables as Parquet files, in the task that has the rows. A later commit adds the files to a table."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from peeklock_pipeline.table_specs import TableSpec

COMPRESSION = "zstd"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that was written for a table: its path below the table, its partition, rows and bytes."""

    path: str
    partition: Mapping[str, str]
    rows: int
    size: int


def write(table: pa.Table, directory: Path, spec: TableSpec) -> Iterator[DataFile]:
    """Write rows to files, one for each partition."""
    partitions = list(spec.partitions)
    keys: list[dict[str, Any]] = table.group_by(partitions).aggregate([]).to_pylist() if partitions else [{}]
    for key in keys:
        part = table
        for name, value in key.items():
            part = part.filter(pc.equal(part[name], pa.scalar(value, spec.schema.field(name).type)))
        values = {name: str(value) for name, value in key.items()}
        # A queue's name has letters, digits and "._-" only, so it is a valid name of a directory.
        place = "/".join(f"{name}={value}" for name, value in values.items())
        path = f"{place}/{uuid4().hex}.parquet" if place else f"{uuid4().hex}.parquet"
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(part.drop_columns(partitions), target, compression=COMPRESSION)
        yield DataFile(path, values, part.num_rows, target.stat().st_size)


def files_of(table: DeltaTable) -> list[DataFile]:
    """Return the files of a table at its opened version, from its log, ordered by path."""
    rows = pa.table(table.get_add_actions(flatten=True)).sort_by("path").to_pylist()
    return [DataFile(row["path"], _partition(row), row["num_records"] or 0, row["size_bytes"]) for row in rows]


def missing_files(files: Iterable[DataFile], directory: Path) -> list[DataFile]:
    """Return the files that do not exist or have no readable footer. Their rows are lost."""
    return [file for file in files if not _is_readable(directory / file.path)]


def _partition(row: Mapping[str, Any]) -> dict[str, str]:
    return {name.removeprefix("partition."): str(row[name]) for name in row if name.startswith("partition.")}


def _is_readable(place: Path) -> bool:
    try:
        pq.read_metadata(place)
    except (OSError, pa.ArrowInvalid):
        return False
    return True
