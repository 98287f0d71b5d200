"""`spark.readStream.format("peeklock")`: the archive as it is sealed; an offset is the number of a sealed batch.

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

from peeklock_pipeline.database import Batch
from peeklock_pipeline.refusals import BatchesLost
from peeklock_pipeline.source.options import ReadOptions, check_columns
from peeklock_pipeline.source.reading import BatchRange, batch_ranges, rows

Offset = dict[str, int]
"""`{"batch": n}`: the stream has processed every batch up to and including n."""

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
        """Return the first offset of a stream without a checkpoint.

        It is before `fromBatch`, or before the first batch still in the archive."""
        if self.options.from_batch is not None:
            return {"batch": self.options.from_batch - 1}
        before = 0
        for batch in self.options.database.batches():
            if batch.removed_at is None:
                break
            before = batch.number
        return {"batch": before}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of batches. Spark calls pieces of input that are read as a whole files."""
        most = self.options.max_batches
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the last batch: only what is sealed now is read."""
        self._end = self._last(self.options.database.batches())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next micro-batch."""
        remaining = [batch for batch in self.options.database.batches(start["batch"]) if self._is_due(batch)]
        if isinstance(limit, ReadMaxFiles):
            remaining = remaining[: limit.max_files]
        return {"batch": max(start["batch"], self._last(remaining))}

    def reportLatestOffset(self) -> Offset | None:
        """Return the last sealed batch."""
        return {"batch": self._last(self.options.database.batches())}

    def partitions(self, start: Offset, end: Offset) -> Sequence[BatchRange]:
        """Return the range of each task.

        Refuses with `BatchesLost` if batches were removed before they were read, unless `failOnDataLoss` is false."""
        if start["batch"] >= end["batch"]:
            return []
        remaining = [batch for batch in self.options.database.batches(start["batch"]) if batch.number <= end["batch"]]
        lost = [batch for batch in remaining if batch.removed_at is not None]
        if lost and self.options.refuses_loss:
            raise BatchesLost(
                f"Batches {lost[0].number} to {lost[-1].number} with {sum(batch.rows for batch in lost)} messages were "
                "removed from the archive before this stream had read them. Read them from the lake, and continue with "
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
