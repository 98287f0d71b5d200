"""retention: removes old messages from the lake, and keeps counts of them for the audit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import PARTITION, LoggedFiles, files_of, require_files
from peeklock_pipeline.results import write_files
from peeklock_pipeline.rewriting import groups_of, rewrite
from peeklock_pipeline.table_specs import ARCHIVE, REMOVED
from peeklock_pipeline.tables import Change
from peeklock_pipeline.task_refusals import task_refusals

COUNTED = ARCHIVE.with_columns("queue", "date", "export_batch", "enqueued_at", "content_digest")
"""The columns of messages by which they are counted."""


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

    Files with other messages as well are written again without those. Counts are written first, and are valid once the
    removal is committed. So the job may crash anywhere and be repeated. Refuses with `LakeUnavailable`, and with `BadLake`,
    even if an export has added messages of these days meanwhile: a removal takes all that a queue has of a day.
    """
    table = lake.archive_table()
    files, removal = _files_before(table, before, queues), uuid4().hex
    require_files(files, lake.directory(ARCHIVE))
    with task_refusals():
        counts = write_files(lake, REMOVED, _counts(lake.read_files(spark, files, COUNTED), before, queues, removal))
        messages, days = _totals(lake.read_files(spark, counts, REMOVED))
    if messages:
        lake.append(REMOVED, counts)
        of_these_days = pc.field(f"{PARTITION}date").isin(days)
        due = files.where(of_these_days)

        def is_complete(latest: DeltaTable) -> bool:
            return not _files_before(latest, before, queues).where(of_these_days).without(due.paths)

        lake.remove(_removal(spark, lake, due, queues), removal, is_complete)
    return RetentionResult(messages, before, tuple(queues))


def _files_before(table: DeltaTable, before: date, queues: Sequence[str]) -> LoggedFiles:
    """Return the files that may have messages to remove."""
    days = {"date": (date.min, before - timedelta(days=1))}
    if not queues:
        return files_of(table, days)
    found = files_of(table, {**days, "queue": (min(queues), max(queues))})
    is_by_queue = "queue" in table.metadata().partition_columns
    return found.where(pc.field(f"{PARTITION}queue").isin(list(queues))) if is_by_queue else found


def _removal(spark: SparkSession, lake: Lake, files: LoggedFiles, queues: Sequence[str]) -> Change:
    """Write the rows that stay, and return the files to exchange. Every row of these files is old enough to go."""
    if not queues:
        return Change(removed=files)
    removed_queues = pa.array(queues)

    def others(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.invert(pc.is_in(rows["queue"], value_set=removed_queues)))

    layout = lake.layout(ARCHIVE)
    kept = rewrite(spark, [*groups_of(files, layout)], lake.directory(ARCHIVE), layout, others)
    return Change(kept, files)


def _totals(counts: DataFrame) -> tuple[int, list[date]]:
    """Return the sum of these counts, and their days."""
    days = counts.groupBy("date").agg(F.sum("messages").alias("messages")).collect()
    return sum(row.messages for row in days), [row.date for row in days]


def _counts(archive: DataFrame, before: date, queues: Sequence[str], removal: str) -> DataFrame:
    """Count the messages to remove. There may be many counts, so tasks write them."""
    chosen = archive.where(F.col("date") < before)
    chosen = chosen.where(F.col("queue").isin(*queues)) if queues else chosen
    by = ("queue", "date", "export_batch", F.to_date("enqueued_at").alias("accepted_on"))
    counts = chosen.groupBy(*by).agg(F.count("*").alias("messages"), F.count("content_digest").alias("covered"))
    return counts.withColumn("removal", F.lit(removal)).select(REMOVED.schema.names)
