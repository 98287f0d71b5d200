"""`spark.readStream.format("peeklock")`: the archive as it is sealed; an offset is the number of a sealed batch.

A sealed batch never changes, so that a micro-batch which is run again after a crash reads the same rows: with a
checkpoint and a sink that forgets what it was given in vain, each message arrives exactly once.
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

from peeklock_pipeline.database import Batch
from peeklock_pipeline.refusals import BatchesLost
from peeklock_pipeline.source.options import ReadOptions, check_columns
from peeklock_pipeline.source.reading import BatchRange, batch_ranges, rows

Offset = dict[str, int]
"""`{"batch": n}`: everything up to and including sealed batch n is behind the stream."""

POLL_SECONDS = 0.1

WORKER_CONNECT_FAILURE = "Python worker failed to connect back"
"""What a query ends with where the process that asks the source for offsets has not come up within ten seconds."""


def begin(start: Callable[[], StreamingQuery], attempts: int = 5) -> StreamingQuery:
    """Start a query of a stream; again where the machine was too busy for Spark, which waits ten seconds and no longer.

    Such a query has done nothing yet. Returns one that has begun, or that has ended for another reason.
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
    """Sealed batches in the order of their numbers, at most `maxBatchesPerTrigger` at a time."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_columns(tuple(schema.fieldNames()))
        self.options = options
        self.schema = schema
        self._end: int | None = None

    def initialOffset(self) -> Offset:
        """Where a stream without a checkpoint begins: before `from_batch`, or before the first batch still there."""
        if self.options.from_batch is not None:
            return {"batch": self.options.from_batch - 1}
        before = 0
        for batch in self.options.database.batches():
            if batch.removed_at is None:
                break
            before = batch.number
        return {"batch": before}

    def getDefaultReadLimit(self) -> ReadLimit:
        """At most so many batches; Spark's word for pieces of input that are only taken whole is files."""
        most = self.options.max_batches
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is sealed now for all there is."""
        self._end = self._last(self.options.database.batches())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next micro-batch goes."""
        remaining = [batch for batch in self.options.database.batches(start["batch"]) if self._is_due(batch)]
        if isinstance(limit, ReadMaxFiles):
            remaining = remaining[: limit.max_files]
        return {"batch": max(start["batch"], self._last(remaining))}

    def reportLatestOffset(self) -> Offset | None:
        """The last batch that is sealed."""
        return {"batch": self._last(self.options.database.batches())}

    def partitions(self, start: Offset, end: Offset) -> Sequence[BatchRange]:
        """What each task reads. Refuses with `BatchesLost` what was removed before it was read, unless told not to."""
        if start["batch"] >= end["batch"]:
            return []
        remaining = [batch for batch in self.options.database.batches(start["batch"]) if batch.number <= end["batch"]]
        lost = [batch for batch in remaining if batch.removed_at is not None]
        if lost and self.options.refuses_loss:
            raise BatchesLost(
                f"Batches {lost[0].number} to {lost[-1].number} with {sum(batch.rows for batch in lost)} messages were "
                "removed from the archive before this stream had read them. Read them from the lake, and go on with "
                "the option failOnDataLoss=false; or keep the archive longer."
            )
        return batch_ranges([batch for batch in remaining if batch.removed_at is None])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one share; refuses as `rows` does."""
        assert isinstance(partition, BatchRange)
        return rows(self.options.database, partition, self.schema)

    def _is_due(self, batch: Batch) -> bool:
        return self._end is None or batch.number <= self._end

    @staticmethod
    def _last(batches: Sequence[Batch]) -> int:
        return batches[-1].number if batches else 0
