"""The views of a report's page: all messages, a queue, a group or a reason, over a period and its intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from peeklock_pipeline.transforms.report import measures
from peeklock_pipeline.transforms.report_parts import ENDS, merged

VIEW = ("view", "view_queue", "view_name")
"""The columns of a view: `all`, `queue`, `reason` or `group`, and its names. The queue of all other queues is null."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The queues, the reasons, and the groups with their queues, that have a view."""

    queues: Sequence[str]
    reasons: Sequence[str]
    groups: Sequence[tuple[str, str]]

    @property
    def queue(self) -> Column:
        """The queue of a part; null if it has no view."""
        return fn.when(fn.col("queue").isin(list(self.queues)), fn.col("queue"))

    @property
    def reason(self) -> Column:
        """The reason of a part; null if it has no view."""
        return fn.when(fn.col("name").isin(list(self.reasons)), fn.col("name"))

    def has_group(self, name: str) -> Column:
        """Whether the queue and the group in the column `name` have a view."""
        groups: dict[str, list[str]] = {}
        for queue, group in self.groups:
            groups.setdefault(queue, []).append(group)
        found = fn.lit(False)
        for queue, names in groups.items():
            found = found | ((fn.col("queue") == queue) & fn.col(name).isin(names))
        return found


def measures_of_views(parts: DataFrame, chosen: Chosen, width: int | None = None) -> DataFrame:
    """Return the measures of each view in the period, and in the one before (`is_before`).

    `at` is null for a whole period. For the period itself there is also a row for each interval of `width` seconds, if
    that is given, that has messages; `at` is its start. Parts are merged for the queues and intervals first, so that sums over them
    merge few.
    """
    whole = fn.lit(None).cast("timestamp")
    at = whole if width is None else fn.when(~fn.col("is_before"), interval(fn.col("hour"), width))
    merged_parts = merged(_with_view(parts, chosen).withColumn("at", at), "kind", "queue", "name", "is_before", "at")
    of_views = merged_parts.withColumn("of", fn.explode(_views_of_part())).select(
        "*", *(fn.col(f"of.{name}") for name in VIEW)
    )
    times = fn.when(fn.col("at").isNull(), fn.array(whole)).otherwise(fn.array(whole, "at"))
    return measures(of_views.withColumn("at", fn.explode(times)), *VIEW, "is_before", "at")


def _with_view(parts: DataFrame, chosen: Chosen) -> DataFrame:
    """Return the parts that belong to a view, with null for queues and names by which they do not differ there."""
    is_queue, is_reason, is_group = (fn.col("kind") == kind for kind in ("queue", "reason", "group"))
    has_view = is_queue | (is_reason & chosen.reason.isNotNull()) | (is_group & chosen.has_group("name"))
    names = {
        "queue": fn.when(is_queue, chosen.queue).when(is_group, fn.col("queue")),
        "name": fn.when(~is_queue, fn.col("name")),
    }
    return parts.where(has_view).withColumns(names)


def _views_of_part() -> Column:
    """Return the views of a part of `_with_view`: those of a queue also belong to all messages."""
    queue, name = fn.col("queue"), fn.col("name")
    return (
        fn.when(fn.col("kind") == "queue", fn.array(_view("all"), _view("queue", queue)))
        .when(fn.col("kind") == "reason", fn.array(_view("reason", name=name)))
        .otherwise(fn.array(_view("group", queue, name)))
    )


def _view(kind: str, queue: Column | None = None, name: Column | None = None) -> Column:
    null = fn.lit(None).cast("string")
    values = (fn.lit(kind), null if queue is None else queue, null if name is None else name)
    return fn.struct(*(value.alias(column) for column, value in zip(VIEW, values, strict=True)))


def interval(at: Column, width: int) -> Column:
    """Return the start of the interval of `width` seconds in which a moment lies."""
    return fn.timestamp_seconds(fn.floor(fn.unix_seconds(at) / width) * width)


def reasons_of_queues(parts: DataFrame, chosen: Chosen) -> DataFrame:
    """Return how many messages of each queue were dead-lettered for each reason; null for queues and reasons without a view."""
    named = parts.where("kind = 'reason'").select(
        chosen.queue.alias("queue"), chosen.reason.alias("reason"), "dead_lettered"
    )
    counted = named.groupBy("queue", "reason").agg(fn.sum("dead_lettered").alias("messages"))
    return counted.where("messages > 0").orderBy(fn.desc("messages"), "queue", "reason")


def largest_queues(parts: DataFrame, most: int) -> DataFrame:
    """Return the queues with most messages that were sent, or ended."""
    counted = (
        parts.where("kind = 'queue'").groupBy("queue").agg(*(fn.sum(name).alias(name) for name in ("sent", *ENDS)))
    )
    ended = sum((fn.col(name) for name in ENDS), fn.lit(0))
    return counted.orderBy(fn.desc(fn.greatest(fn.col("sent"), ended)), "queue").select("queue").limit(most)


def most_frequent_reasons(parts: DataFrame, most: int) -> DataFrame:
    """Return the most frequent reasons of dead-lettered messages."""
    named = parts.where("kind = 'reason' AND name IS NOT NULL")
    counted = named.groupBy(fn.col("name").alias("reason")).agg(fn.sum("dead_lettered").alias("messages"))
    return counted.orderBy(fn.desc("messages"), "reason").limit(most)


def extent(parts: DataFrame, counted: Column) -> DataFrame:
    """Return one row: the `first` and `last` moment of all parts, else null, and the number of `queues` of the counted ones."""
    of_queues = parts.where("kind = 'queue'")
    queues = fn.count_distinct(fn.when(counted, fn.col("queue")))
    return of_queues.agg(fn.min("first_at").alias("first"), fn.max("last_at").alias("last"), queues.alias("queues"))
