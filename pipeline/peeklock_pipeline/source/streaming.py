"""`spark.readStream.format("peeklock")`: the archive as it is sealed, or a lake as it is exported, by batch numbers.

A sealed batch never changes, so a micro-batch that runs again after a crash reads the same rows. With a checkpoint and
a sink that discards the output of failed attempts, each message arrives exactly once.
"""

import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from peeklock_pipeline.refusals import BatchesLost
from peeklock_pipeline.source.options import ReadOptions, check_columns
from peeklock_pipeline.source.origins import Offset
from peeklock_pipeline.source.reading import NOTHING

POLL_SECONDS = 0.1

WORKER_CONNECT_FAILURE = "Python worker failed to connect back"
"""The error of a query if the process that asks the source for offsets has not started within ten seconds."""


def begin(start: Callable[[], StreamingQuery], attempts: int = 5) -> StreamingQuery:
    """Start a query of a stream, and start it again if its Python process came up too late.

    Spark waits ten seconds for that process, too short for a busy machine; a query that fails so has done nothing.
    Returns a query that has begun, or that has ended for another reason.
    """
    for _ in range(attempts - 1):
        query = start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(POLL_SECONDS)
        error = query.exception()
        if error is None or WORKER_CONNECT_FAILURE not in str(error):
            return query
    return start()


class ArchiveStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads sealed batches in the order of their numbers, at most `maxBatchesPerTrigger` at a time."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_columns(tuple(schema.fieldNames()))
        self.options = options
        self.schema = schema
        self._end: int | None = None

    def initialOffset(self) -> Offset:
        """Return the first offset of a stream without a checkpoint: before `fromBatch` or the first batch that is left."""
        return self.options.origin.first_offset(self.options.from_batch)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of batches. Spark calls pieces of input that are read as a whole files."""
        most = self.options.max_batches
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the last batch: only what is sealed now is read."""
        self._end = self.options.origin.last_batch()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next micro-batch.

        Refuses with `BatchesLost` batches that end before those that the stream has read, unless `failOnDataLoss` is
        false."""
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        last = self.options.origin.last_batch(start["batch"], most)
        if last == start["batch"] and self.options.refuses_loss:
            self._check_end(last)
        return {**start, "batch": max(start["batch"], last if self._end is None else min(last, self._end))}

    def _check_end(self, read: int) -> None:
        """Refuse if the last batch is before one that the stream has read. `fromBatch` may be of a later batch."""
        last = self.options.origin.last_batch()
        if last < read and read + 1 != self.options.from_batch:
            raise BatchesLost(
                f"This stream has read up to batch {read}, but the last one is now {last}, as after a restore of an older "
                "copy: later batches may have the same numbers and other messages. Begin another stream with fromBatch "
                f"and a new checkpoint, or continue after batch {read} with failOnDataLoss=false."
            )

    def reportLatestOffset(self) -> Offset | None:
        """Return the last batch."""
        return {"batch": self.options.origin.last_batch()}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch.

        Refuses with `BatchesLost` if messages were removed before they were read, unless `failOnDataLoss` is false."""
        if start["batch"] >= end["batch"]:
            return []
        plan = self.options.origin.plan(start, end["batch"])
        if plan.lost and self.options.refuses_loss:
            raise BatchesLost(plan.lost)
        return plan.tasks or [NOTHING]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task; refuses as `Origin.rows` does."""
        if type(partition) is InputPartition:
            return iter(())
        return self.options.origin.rows(partition, self.schema)
