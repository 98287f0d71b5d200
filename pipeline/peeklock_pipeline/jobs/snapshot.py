"""snapshot: copies the messages that are in queues now, including dead-lettered ones, into a table of the lake."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import SparkSession

from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.export import sealed_batches_after
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.ranges import even_ranges, write_ranges
from peeklock_pipeline.table_specs import MESSAGES, TIMESTAMP

RANGE_NUMBERS = 100_000
"""Sequence numbers that one task reads. More, if this made too many tasks."""


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """The number of messages in the table, and the start of the snapshot."""

    messages: int
    taken_at: datetime


def snapshot(spark: SparkSession, database: Database, lake: Lake, now: datetime | None = None) -> SnapshotResult:
    """Replace the table of messages. Each row is the message at some moment after `taken_at`, not all at the same.

    Refuses with `DatabaseUnavailable` and `BadLake`; the table is then unchanged.
    """
    sealed_batches_after(database, lake.export_position())
    taken_at = now or datetime.now(UTC)
    span = database.span()
    ranges = even_ranges(*span, RANGE_NUMBERS) if span else []
    files = write_ranges(spark, ranges, _read(database, taken_at), lake.directory(MESSAGES), lake.layout(MESSAGES))
    lake.replace(MESSAGES, files)
    return SnapshotResult(sum(file.rows for file in files), taken_at)


def _read(database: Database, taken_at: datetime) -> Callable[[int, int], Iterator[pa.Table]]:
    def read(first: int, last: int) -> Iterator[pa.Table]:
        for piece in database.messages(first, last):
            taken = pa.repeat(pa.scalar(taken_at, TIMESTAMP), piece.num_rows)
            yield piece.append_column(MESSAGES.schema.field("taken_at"), taken)

    return read
