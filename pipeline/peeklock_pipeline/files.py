"""Arrow tables written as Parquet files of a lake's table, in the task that has them; nothing belongs to it yet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from peeklock_pipeline.columns import Shape

COMPRESSION = "zstd"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that was written for a table: its path below the table, and what readers should know of it."""

    path: str
    partition: Mapping[str, str]
    rows: int
    size: int


def write(table: pa.Table, directory: Path, shape: Shape) -> Iterator[DataFile]:
    """Write rows into files of their own, one for each partition that they fall into."""
    partitions = list(shape.partitions)
    keys: list[dict[str, Any]] = table.group_by(partitions).aggregate([]).to_pylist() if partitions else [{}]
    for key in keys:
        part = table
        for name, value in key.items():
            part = part.filter(pc.equal(part[name], pa.scalar(value, shape.schema.field(name).type)))
        values = {name: str(value) for name, value in key.items()}
        # A queue's name is of letters, digits and "._-", which the name of a directory takes as they are.
        place = "/".join(f"{name}={value}" for name, value in values.items())
        path = f"{place}/{uuid4().hex}.parquet" if place else f"{uuid4().hex}.parquet"
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(part.drop_columns(partitions), target, compression=COMPRESSION)
        yield DataFile(path, values, part.num_rows, target.stat().st_size)
