"""Messages that ended as a test says, as the lake has them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from peeklock_pipeline.files import write
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.table_specs import ARCHIVE
from peeklock_pipeline.tables import ExportPosition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)

PLAIN: Mapping[str, Any] = {
    "queue": "orders",
    "outcome": "completed",
    "expires_at": None,
    "delivery_count": 1,
    "failure_count": 0,
    "last_failure": None,
    "priority": 4,
    "group_id": None,
    "receiver_id": None,
    "lock_token": None,
    "headers": None,
    "properties": None,
    "body_kind": "none",
    "body": b"",
    "dead_letter_reason": None,
    "dead_letter_description": None,
    "content_digest": None,
    "export_batch": 1,
}
"""What a message is where a test does not say."""

DELIVERED = ("first_delivered_at", "last_delivered_at")


def later(seconds: float) -> datetime:
    """A moment so long after noon."""
    return NOON + timedelta(seconds=seconds)


def ended(
    number: int, sent: float, first: float | None, last: float | None, end: float, **other: Any
) -> dict[str, Any]:
    """A message by the seconds after noon at which it was sent, first and last delivered, and ended."""
    delivered = (None if at is None else later(at) for at in (first, last))
    times = {"enqueued_at": later(sent), "available_at": later(sent), "settled_at": later(end)}
    names = {"sequence_number": number, "message_id": f"id-{number}"}
    row = {**PLAIN, **names, **times, **dict(zip(DELIVERED, delivered, strict=True)), **other}
    return {**row, "date": row["settled_at"].date()}


def history(spark: SparkSession, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """These messages as the archive of a lake."""
    return spark.createDataFrame(
        pa.Table.from_pylist(list(rows), schema=ARCHIVE.schema), from_arrow_schema(ARCHIVE.schema)
    )


def fill(lake: Lake, rows: Iterable[Mapping[str, Any]]) -> None:
    """Put these messages into a lake, as an export of their batches would."""
    exported, after = list(rows), lake.export_position()
    last = max((row["export_batch"] for row in exported), default=1)
    files = list(write(pa.Table.from_pylist(exported, schema=ARCHIVE.schema), lake.directory(ARCHIVE), ARCHIVE))
    assert lake.add_batches(files, after, ExportPosition(last, last), 1)
