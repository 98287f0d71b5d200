"""retention: removes old messages from the lake, and keeps counts of them for the audit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.files import write
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.table_specs import REMOVED


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """How many messages were removed: those that ended before a day in UTC, of these queues or of all."""

    messages: int
    before: date
    queues: tuple[str, ...]


def first_kept_day(older_than: timedelta, now: datetime | None = None) -> date:
    """Return the first day that stays. A day is removed as a whole, once its last message is old enough."""
    return ((now or datetime.now(UTC)) - older_than).date()


def retention(spark: SparkSession, lake: Lake, before: date, queues: Sequence[str] = ()) -> RetentionResult:
    """Remove messages that ended before a day; their files stay until `vacuum`.

    Counts are written first, and are valid once the removal is committed. So the job may crash anywhere and be
    repeated. Refuses with `BadLake`.
    """
    table = lake.archive_table()
    counts = _counts(lake.read_version(spark, table), before, queues).toArrow().cast(REMOVED.schema)
    messages = sum(row["messages"] for row in counts.to_pylist())
    if messages:
        lake.append(REMOVED, list(write(counts, lake.directory(REMOVED), REMOVED)))
        lake.remove(table, _predicate(before, queues), counts["removal"][0].as_py())
    return RetentionResult(messages, before, tuple(queues))


def _counts(archive: DataFrame, before: date, queues: Sequence[str]) -> DataFrame:
    chosen = archive.where(F.col("date") < before)
    chosen = chosen.where(F.col("queue").isin(*queues)) if queues else chosen
    by = ("queue", "date", "export_batch", F.to_date("enqueued_at").alias("accepted_on"))
    counts = chosen.groupBy(*by).agg(F.count("*").alias("messages"), F.count("content_digest").alias("covered"))
    return counts.withColumn("removal", F.lit(uuid4().hex)).select(REMOVED.schema.names)


def _predicate(before: date, queues: Sequence[str]) -> str:
    named = ", ".join("'" + queue.replace("'", "''") + "'" for queue in queues)
    return f"date < '{before.isoformat()}'" + (f" AND queue IN ({named})" if queues else "")
