"""`spark.read.format("peeklock")`: sealed batches of the archive as Arrow record batches, several to a task."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from peeklock_pipeline.database import Batch, Database
from peeklock_pipeline.jobs.export import export_tasks
from peeklock_pipeline.refusals import BatchesLost
from peeklock_pipeline.source.options import ReadOptions, check_columns
from peeklock_pipeline.table_specs import HISTORY, TIMESTAMP

CHUNK_ROWS = 10_000
"""Rows handed to Spark at a time."""

NEEDS = {"date": "settled_at", "lock_token": "sequence_number", HISTORY: "sequence_number"}
"""Columns that are computed from another column."""


@dataclass(frozen=True)
class BatchRange(InputPartition):
    """Neighbouring batches that one task reads; `rows` is the number of their messages, 0 for an empty range."""

    first: int
    last: int
    rows: int


def batch_ranges(batches: Sequence[Batch]) -> list[BatchRange]:
    """Split batches into tasks. Never returns an empty list, because Spark replaces it with a range of its own."""
    found = [BatchRange(unit.first, unit.last, unit.rows) for unit in export_tasks(batches)]
    return found or [BatchRange(0, 0, 0)]


def rows(database: Database, batch_range: BatchRange, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range, in exactly the columns of a schema.

    Refuses with `BatchesLost`, after the last message, if batches of the range were removed since it was planned.
    """
    if not batch_range.rows:
        return
    names, exact, found = schema.fieldNames(), to_arrow_schema(schema, timezone="UTC"), 0
    needed = [*names, *(NEEDS[name] for name in names if name in NEEDS)]
    for piece in database.chunks(batch_range.first, batch_range.last, needed):
        found += piece.num_rows
        yield from piece.select(names).cast(exact).to_batches(max_chunksize=CHUNK_ROWS)
    if found != batch_range.rows:
        raise BatchesLost(
            f"Batches {batch_range.first} to {batch_range.last} held {batch_range.rows} messages and now hold {found}: some were "
            "removed by retention or a trim while they were being read. Read again, or read the lake."
        )


class ArchiveReader(DataSourceReader):
    """Reads all sealed batches that are still in the archive, from `fromBatch` on."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_columns(tuple(schema.fieldNames()))
        self.options = options
        self.schema = schema

    def partitions(self) -> list[BatchRange]:
        """Return the range of each task."""
        return batch_ranges([batch for batch in self._sealed() if batch.removed_at is None and self._wants(batch)])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one range; refuses as `rows` does."""
        assert isinstance(partition, BatchRange)
        return rows(self.options.database, partition, self.schema)

    def _sealed(self) -> Sequence[Batch]:
        return self.options.database.batches((self.options.from_batch or 1) - 1)

    def _wants(self, batch: Batch) -> bool:
        return True


class FilteringReader(ArchiveReader):
    """Skips batches in which no row can pass the filters. Spark still checks every row that is read."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Store filters for `partitions`, and leave all of them to Spark."""
        self._filters = filters
        return filters

    def _wants(self, batch: Batch) -> bool:
        return all(may_match(condition, batch) for condition in self._filters)


def may_match(one: Filter, batch: Batch) -> bool:
    """Return whether a row of this batch may pass a filter: its settlements precede its sealing."""
    match one:
        case EqualTo(("export_batch",), number):
            return batch.number == number
        case GreaterThan(("export_batch",), number):
            return batch.number > number
        case GreaterThanOrEqual(("export_batch",), number):
            return batch.number >= number
        case LessThan(("export_batch",), number):
            return batch.number < number
        case LessThanOrEqual(("export_batch",), number):
            return batch.number <= number
        case EqualTo(("settled_at",), moment) | GreaterThan(("settled_at",), moment):
            return batch.sealed_at >= _microseconds(moment)
        case GreaterThanOrEqual(("settled_at",), moment):
            return batch.sealed_at >= _microseconds(moment)
        case _:
            return True


def _microseconds(moment: datetime) -> int:
    found: Any = pa.scalar(moment, TIMESTAMP).value
    return int(found)
