"""What a reader asks of the place that holds the batches: the server's archive or a lake."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from peeklock_pipeline.conditions import Condition

CHUNK_ROWS = 10_000
"""Rows handed to Spark at a time."""

Offset = dict[str, int]
"""`{"batch": n}`: a stream has processed every batch up to and including n. An origin adds what it has to remember."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What tasks read of some batches. `lost` is a sentence about messages that are gone, None if all remain."""

    tasks: Sequence[InputPartition]
    lost: str | None = None


class Origin(Protocol):
    """A place that holds sealed batches. It holds no connection, so it can be sent to executors."""

    def first_offset(self, from_batch: int | None) -> Offset:
        """Return the offset before a batch, or before the first batch that is left."""
        ...

    def last_batch(self, after: int = 0, most: int | None = None) -> int:
        """Return the last batch, of the first `most` after a number; that number if none follows."""
        ...

    def plan(self, start: Offset, last: int | None, conditions: Sequence[Condition] = ()) -> Plan:
        """Return what to read of the batches after an offset, up to the last one or to a given one."""
        ...

    def rows(
        self, task: InputPartition, schema: StructType, conditions: Sequence[Condition] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a task that meet the conditions, in exactly the columns of a schema.

        Refuses with `BatchesLost`, possibly after some messages, if they were removed since the plan was made.
        """
        ...
