"""`df.write` and `df.writeStream` to the format `peeklock`: rows become messages of a queue, each stored once.

Message ids and the queue's duplicate detection window ensure this. A repeated task, or a micro-batch that runs again
from its checkpoint, gives the same ids. Rows have ids in the column `message_id`. A row without one gets an id derived
from the write, the task and its content (see `message_json`), which takes about 150 bytes of the task's memory a row.
A second `df.write` of the same rows is another write and sends them again. Only explicit ids prevent that.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from peeklock_pipeline.message_json import check_columns, new_messages
from peeklock_pipeline.refusals import BadOption
from peeklock_pipeline.sending import Destination, Sender
from peeklock_pipeline.source.options import WriteOptions

QUERY, EPOCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Properties that Spark sets for the tasks of a stream: its id in the checkpoint, and the number of the micro-batch."""


@dataclass(frozen=True)
class WriteResult(WriterCommitMessage):
    """The number of messages that one task sent."""

    messages: int
    duplicates: int


def open_sender(options: WriteOptions, schema: StructType, overwrite: bool) -> Destination:
    """Return the destination, after checking that it accepts these rows and detects duplicates.

    Refuses with `BadOption`, `BadColumns`, `NoDuplicateDetection`, `SendRefused` and `ServerUnavailable`.
    """
    if overwrite:
        raise BadOption("A queue cannot be overwritten: use mode('append').")
    check_columns(schema)
    with Sender(options.destination) as sender:
        return options.destination.limited_to_window(sender.window())


class QueueWriter(DataSourceArrowWriter):
    """Sends the rows of one `df.write`. Messages sent before a failure stay in the queue."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.write_id = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task."""
        return _send(self.destination, iterator, self.write_id)


class QueueStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch of a stream."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task of a micro-batch."""
        task = _task()
        return _send(self.destination, iterator, f"{task.getLocalProperty(QUERY)}/{task.getLocalProperty(EPOCH)}")


def _send(destination: Destination, batches: Iterator[pa.RecordBatch], write: str) -> WriteResult:
    with Sender(destination) as sender:
        sent = sender.send(new_messages(batches, f"{write}/{_task().partitionId()}"))
    return WriteResult(sent.messages, sent.duplicates)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None
    return task
