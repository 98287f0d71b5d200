"""The views of a report's page: all messages, a queue, a group or a reason, over a period and its intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from peeklock_pipeline.transforms.report import measures
from peeklock_pipeline.transforms.report_parts import ENDS

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


def views(parts: DataFrame, chosen: Chosen) -> DataFrame:
    """Return each part once for each view that it belongs to, with the columns `VIEW`."""
    kind = fn.col("kind")
    found = (
        fn.when(kind == "queue", fn.array(_view("all"), _view("queue", chosen.queue)))
        .when((kind == "reason") & chosen.reason.isNotNull(), fn.array(_view("reason", name=fn.col("name"))))
        .when((kind == "group") & chosen.has_group("name"), fn.array(_view("group", fn.col("queue"), fn.col("name"))))
    )
    return parts.withColumn("of", fn.explode(found)).select("*", *(fn.col(f"of.{name}") for name in VIEW)).drop("of")


def _view(kind: str, queue: Column | None = None, name: Column | None = None) -> Column:
    null = fn.lit(None).cast("string")
    values = (fn.lit(kind), null if queue is None else queue, null if name is None else name)
    return fn.struct(*(value.alias(column) for column, value in zip(VIEW, values, strict=True)))


def totals(of_views: DataFrame, is_before: Column) -> DataFrame:
    """Return the measures of each view in the period, and in the one before: `is_before`."""
    return measures(of_views.withColumn("is_before", is_before), *VIEW, "is_before")


def over_time(of_views: DataFrame, width: int) -> DataFrame:
    """Return the measures of each view in each interval of `width` seconds; `at` is its start."""
    return measures(of_views.withColumn("at", interval(fn.col("hour"), width)), *VIEW, "at").orderBy("at")


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
