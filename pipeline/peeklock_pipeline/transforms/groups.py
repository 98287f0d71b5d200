"""The groups of messages that are in queues."""

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from peeklock_pipeline.table_specs import CODES, TIMESTAMP, TableSpec

STATES = tuple(name for name in CODES["state"] if name not in ("", "uncommitted"))

GROUPS = TableSpec(
    "groups",
    pa.schema(
        [
            pa.field("queue", pa.string(), nullable=False),
            pa.field("group_id", pa.string(), nullable=False),
            pa.field("messages", pa.int64(), nullable=False),
            *(pa.field(state, pa.int64(), nullable=False) for state in STATES),
            pa.field("first_enqueued_at", TIMESTAMP, nullable=False),
            pa.field("first_sequence_number", pa.int64(), nullable=False),
            pa.field("taken_at", TIMESTAMP, nullable=False),
        ]
    ),
)
"""The groups with messages in queues: how many, in which states, and the one that was sent first."""


def groups(messages: DataFrame) -> DataFrame:
    """The table `GROUPS`, of a snapshot's messages."""
    return (
        messages.where("group_id IS NOT NULL")
        .groupBy("queue", "group_id")
        .agg(
            fn.count("*").alias("messages"),
            *(fn.count_if(fn.col("state") == state).alias(state) for state in STATES),
            fn.min("enqueued_at").alias("first_enqueued_at"),
            fn.min("sequence_number").alias("first_sequence_number"),
            fn.max("taken_at").alias("taken_at"),
        )
    )
