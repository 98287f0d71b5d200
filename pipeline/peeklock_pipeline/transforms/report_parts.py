"""The parts of a report: counts and sketches of times for each queue and hour, which later parts are merged with.

A part is of one `kind`: all messages of a `queue`, the completed ones of a `group`, or those dead-lettered for a
`reason`. Counts add up. Times are KLL sketches: of any number of values one keeps a bounded sample, and two merge into the sketch of
the values of both. So a report reads each message once, and then its parts only.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from peeklock_pipeline.table_specs import TIMESTAMP, TableSpec

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
TIMES = ("waiting", "processing", "end_to_end")

SKETCH_SIZE = 800
"""The parameter k of the sketches of queues. Up to that number of values quantiles are exact, by nearest rank. Above, the
rank of a quantile among n is wrong by at most 0.35 % of n, with a probability of 99 %, after any number of merges."""

GROUP_SKETCH_SIZE = 200
"""The parameter k of the sketches of groups, of which there are many: an error of 1.4 % above 200 values."""

COUNTS = (
    "sent", "completed", "received", "dead_lettered", "expired", "purged", "cancelled",
    "delivered", "deliveries", "redelivered", "failures", "lock_losses_at_least", "lock_losses_at_most",
)  # fmt: skip
ENDS = ("completed", "received", "dead_lettered", "expired", "purged", "cancelled")
SUMS = (*COUNTS, "live")
"""The counts of a part. `live` of the `dead_lettered` messages were in the dead-letter queue at the snapshot."""

PARTS = TableSpec(
    "report_parts",
    pa.schema(
        [
            pa.field("kind", pa.string(), nullable=False),
            pa.field("queue", pa.string(), nullable=False),
            pa.field("name", pa.string()),
            pa.field("date", pa.date32()),
            pa.field("hour", TIMESTAMP, nullable=False),
            *(pa.field(name, pa.int64(), nullable=False) for name in SUMS),
            *(pa.field(name, pa.binary()) for name in TIMES),
            pa.field("first_at", TIMESTAMP, nullable=False),
            pa.field("last_at", TIMESTAMP, nullable=False),
            pa.field("slowest", pa.int64()),
            pa.field("last_batch", pa.int64()),
        ]
    ),
)
"""The parts of archived messages. `name` is a group or a reason; null sums up those that are left out.

`date` is the day on which the messages ended, and `last_batch` their last export batch: the lake's retention removes
messages by them. `first_at` and `last_at` are the first and last moment in the hour, `slowest` the longest end-to-end
time. Times are microseconds.
"""

MAX_NAMES = 100
"""The groups and the reasons of a queue and day that are kept: the slowest groups, the most frequent reasons. Clients
choose them, so there may be as many as messages."""

KEYS = ("kind", "queue", "name", "date", "hour")

SENDING_AND_END = """stack(2, true, enqueued_at, false, CASE WHEN ended IS NOT NULL THEN ended_at END)
    AS (is_sending, at)"""
ENDED_COLUMNS = ("ended", "delivery_count", "failure_count", "lock_losses_at_least", "lock_losses_at_most")


def parts(histories: DataFrame) -> DataFrame:
    """Return the parts of messages of `transforms.report.message_histories`, with the columns of `PARTS`.

    The slowest groups and the most frequent reasons of each queue and day are kept.
    """
    reasons = _bounded_reasons(reason_parts(histories), MAX_NAMES)
    groups = group_parts(with_slowest_groups(in_groups(histories)))
    return queue_parts(histories).unionByName(reasons).unionByName(groups)


def queue_parts(histories: DataFrame, slot: Column | None = None) -> DataFrame:
    """Return the parts of all messages: every message counts when it was sent, and when it ended.

    Another `slot` of the time `at` takes the place of the hour.
    """
    times = [_micros(time).alias(time) for time in TIMES]
    both = histories.select("queue", "date", "export_batch", *ENDED_COLUMNS, *times, fn.expr(SENDING_AND_END))
    only_ended = {name: fn.when(~fn.col("is_sending"), fn.col(name)) for name in (*ENDED_COLUMNS, *TIMES)}
    counted = both.where("at IS NOT NULL").withColumns(only_ended)
    sketches = {time: fn.kll_sketch_agg_bigint(time, SKETCH_SIZE) for time in TIMES}
    return _grouped(counted, "queue", slot, {"sent": fn.count_if("is_sending"), **_counts_of_ends(), **sketches})


def reason_parts(histories: DataFrame, slot: Column | None = None) -> DataFrame:
    """Return the parts of dead-lettered messages by reason."""
    dead = histories.where("ended = 'dead_lettered'").withColumns(
        {"name": fn.col("dead_letter_reason"), "at": fn.col("ended_at")}
    )
    return _grouped(dead, "reason", slot, {"dead_lettered": fn.count("*"), "live": fn.count_if("is_live")})


def group_parts(histories: DataFrame, slot: Column | None = None) -> DataFrame:
    """Return the parts of the messages of `in_groups`, by group."""
    done = histories.withColumns({"name": fn.col("group_id"), "at": fn.col("ended_at")})
    sketch = fn.kll_sketch_agg_bigint("end_to_end", GROUP_SKETCH_SIZE)
    found = {**_counts_of_ends(), "end_to_end": sketch, "slowest": fn.max("end_to_end")}
    return _grouped(done.withColumn("end_to_end", _micros("end_to_end")), "group", slot, found)


def in_groups(histories: DataFrame) -> DataFrame:
    """Return the completed messages that belong to groups."""
    return histories.where("group_id IS NOT NULL AND end_to_end IS NOT NULL")


def with_slowest_groups(messages: DataFrame, most: int = MAX_NAMES) -> DataFrame:
    """Return the messages of `in_groups` with the group null, except for the slowest groups of a queue and day."""
    day = ("queue", "date")
    slowest = messages.groupBy(*day, "group_id").agg(fn.max("end_to_end").alias("slowest"))
    place = fn.row_number().over(Window.partitionBy(*day).orderBy(fn.desc("slowest"), "group_id"))
    chosen = slowest.withColumn("place", place).where(fn.col("place") <= most)
    named = chosen.select(*day, "group_id", fn.col("group_id").alias("kept"))
    marked = messages.join(named, [*day, "group_id"], "left")
    return marked.withColumn("group_id", fn.col("kept")).drop("kept")


def _counts_of_ends() -> dict[str, Column]:
    return {
        **{end: fn.count_if(fn.col("ended") == end) for end in ENDS},
        "delivered": fn.count_if(fn.col("delivery_count") > 0),
        "deliveries": _sum("delivery_count"),
        "redelivered": fn.count_if(fn.col("delivery_count") > 1),
        "failures": _sum("failure_count"),
        **{name: _sum(name) for name in ("lock_losses_at_least", "lock_losses_at_most")},
    }


def _grouped(counted: DataFrame, kind: str, slot: Column | None, found: dict[str, Column]) -> DataFrame:
    """Return the parts of a kind: what is `found`, zero for other counts, and null for other times."""
    name = [] if kind == "queue" else ["name"]
    slots = counted.withColumn("hour", fn.date_trunc("hour", "at") if slot is None else slot)
    known = {
        **found,
        "first_at": fn.min("at"),
        "last_at": fn.max("at"),
        "last_batch": fn.max("export_batch"),
    }
    grouped = slots.groupBy("queue", *name, "date", "hour").agg(*(value.alias(key) for key, value in known.items()))
    absent = {
        "kind": fn.lit(kind),
        **({} if name else {"name": fn.lit(None).cast("string")}),
        **{key: fn.lit(0).cast("bigint") for key in SUMS if key not in known},
        **{key: fn.lit(None).cast("binary") for key in TIMES if key not in known},
        **({} if "slowest" in known else {"slowest": fn.lit(None).cast("bigint")}),
    }
    return grouped.withColumns(absent).select(*PARTS.schema.names)


def _micros(time: str) -> Column:
    return fn.round(fn.col(time) * 1_000_000).cast("bigint")


def merged(some: DataFrame, *by: str, size: int = SKETCH_SIZE) -> DataFrame:
    """Return parts merged for each value of `by`, with sketches of a size; one row without `by`."""
    return some.groupBy(*by).agg(
        *(_sum(name).alias(name) for name in SUMS),
        *(fn.kll_merge_agg_bigint(time, size).alias(time) for time in TIMES),
        fn.min("first_at").alias("first_at"),
        fn.max("last_at").alias("last_at"),
        fn.max("slowest").alias("slowest"),
        fn.max("last_batch").alias("last_batch"),
    )


def quantiles(time: str) -> Column:
    """Return `QUANTILES` of a sketch in seconds, as an array; null if it has no value."""
    ranks = fn.array(*(fn.lit(rank) for rank in QUANTILES.values()))
    filled = fn.when(fn.kll_sketch_get_n_bigint(time) > 0, fn.col(time))  # an empty sketch has no quantile
    return fn.transform(fn.kll_sketch_get_quantile_bigint(filled, ranks), lambda value: value / 1e6)


def joined(some: DataFrame, most: int = MAX_NAMES) -> DataFrame:
    """Return parts merged for each hour, with at most `most` groups and `most` reasons of a queue and day.

    The others are summed up under the name null.
    """
    groups = merged(_bounded(some.where("kind = 'group'"), fn.max("slowest"), most), *KEYS, size=GROUP_SKETCH_SIZE)
    reasons = _bounded_reasons(some.where("kind = 'reason'"), most)
    return merged(some.where("kind = 'queue'"), *KEYS).unionByName(groups).unionByName(reasons)


def _bounded_reasons(some: DataFrame, most: int) -> DataFrame:
    return merged(_bounded(some, fn.sum("dead_lettered"), most), *KEYS)


def _bounded(some: DataFrame, weight: Column, most: int) -> DataFrame:
    """Return parts of one kind, with the name null except for the heaviest names of a queue and day."""
    day = ("queue", "date")
    weighed = some.withColumn("weight", weight.over(Window.partitionBy(*day, "name")))
    order = (fn.col("name").isNull(), fn.desc_nulls_last("weight"), "name")
    ranked = weighed.withColumn("place", fn.dense_rank().over(Window.partitionBy(*day).orderBy(*order)))
    named = fn.when(fn.col("place") <= most, fn.col("name"))
    return ranked.withColumn("name", named).select(some.columns)


def kept(some: DataFrame, removed: DataFrame) -> DataFrame:
    """Return parts without those of messages that the lake's retention has removed; see `REMOVED`.

    A removal takes every message that a queue has of a day at that moment, so a part is removed as a whole, or is newer.
    """
    last = removed.groupBy("queue", "date").agg(fn.max("export_batch").alias("removed_batch"))
    is_gone = [
        some["queue"] == last["queue"],
        some["date"] == last["date"],
        some["last_batch"] <= last["removed_batch"],
    ]
    return some.join(fn.broadcast(last), is_gone, "left_anti")


def _sum(name: str) -> Column:
    return fn.coalesce(fn.sum(name), fn.lit(0)).cast("bigint")
