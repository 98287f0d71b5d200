"""The histories of messages, and the tables of a report: counts, redeliveries, durations and dead-letter reasons.

What the archive shows and what it does not:

- It has one row for each message, with counts and the first and last delivery, but no row for each delivery. So every
  number belongs to the hour in which its message ended, except `sent`, which belongs to the hour of sending.
- A redrive resets a message's counts and clears its reason, so deliveries before it are not counted. The end-to-end
  time still begins with the sending. A message counts for the queue in which it ended.
- Messages that are still in their queues are known only from a snapshot, if one exists. Of messages of queues that keep no
  archive only the number is known, from a snapshot.
- Only the last failure of a message is known by its kind, so the number of lock losses lies between two bounds.
"""

from datetime import date

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from peeklock_pipeline.table_specs import ARCHIVE, MESSAGES, TIMESTAMP, TableSpec
from peeklock_pipeline.transforms.report_parts import COUNTS, GROUP_SKETCH_SIZE, QUANTILES, TIMES, merged, quantiles

SHARES = ("redelivery_share", "deliveries_per_message")
QUANTILE_COLUMNS = tuple(f"{time}_{name}" for time in TIMES for name in QUANTILES)

MEASURES = [
    *(pa.field(name, pa.int64(), nullable=False) for name in COUNTS),
    *(pa.field(name, pa.float64()) for name in (*SHARES, *QUANTILE_COLUMNS)),
]
QUEUE = pa.field("queue", pa.string(), nullable=False)

HOURS = TableSpec("report_hours", pa.schema([QUEUE, pa.field("hour", TIMESTAMP, nullable=False), *MEASURES]))
"""The measures of each queue and hour; times in seconds."""

QUEUES = TableSpec("report_queues", pa.schema([QUEUE, *MEASURES]))
"""The measures of each queue over all time."""

REASONS = TableSpec(
    "report_dead_letter_reasons",
    pa.schema(
        [
            QUEUE,
            pa.field("reason", pa.string(), nullable=False),
            pa.field("messages", pa.int64(), nullable=False),
            pa.field("waiting", pa.int64(), nullable=False),
        ]
    ),
)
"""The reasons of dead-lettered messages; `waiting` of them were still in the dead-letter queue at the snapshot."""

GROUPS = TableSpec(
    "report_slowest_groups",
    pa.schema(
        [
            QUEUE,
            pa.field("group_id", pa.string(), nullable=False),
            pa.field("messages", pa.int64(), nullable=False),
            pa.field("redelivered", pa.int64(), nullable=False),
            pa.field("end_to_end_p50", pa.float64()),
            pa.field("end_to_end_p95", pa.float64(), nullable=False),
        ]
    ),
)
"""The groups whose messages took longest from sending to completion."""

MAX_GROUPS = 1000
"""The number of groups in the table."""

NO_REASON = "(none given)"
OTHER_REASONS = "(all others)"

# A client may give one of these two as a reason. Then it is in quotes; so are the same with quotes, and no two become equal.
OWN_REASON = f"""CASE WHEN replace(dead_letter_reason, '"') IN ('{NO_REASON}', '{OTHER_REASONS}')
             THEN concat('"', dead_letter_reason, '"') ELSE dead_letter_reason END"""

HISTORY_COLUMNS = (
    "sequence_number", "queue", "group_id", "enqueued_at", "available_at", "first_delivered_at", "last_delivered_at",
    "delivery_count", "failure_count", "last_failure", "dead_letter_reason",
)  # fmt: skip
"""The columns that a report reads from both the archive and a snapshot of live messages."""

ENDED_MESSAGES = ARCHIVE.with_columns(*HISTORY_COLUMNS, "outcome", "settled_at", "date", "export_batch")
"""What a report reads of the archive."""

LIVE_MESSAGES = MESSAGES.with_columns(*HISTORY_COLUMNS, "state", "dead_lettered_at", "taken_at")
"""What a report reads of a snapshot."""

# A retry delay or an edit overwrites available_at. So it is the time at which the message first became available only
# if it lies before the first delivery.
WAITING = """CASE WHEN available_at <= first_delivered_at
             THEN unix_micros(first_delivered_at) - unix_micros(available_at) END"""
PROCESSING = "CASE WHEN ended = 'completed' THEN unix_micros(ended_at) - unix_micros(last_delivered_at) END"
END_TO_END = "CASE WHEN ended IN ('completed', 'received') THEN unix_micros(ended_at) - unix_micros(enqueued_at) END"

# Every lost lock overwrites the last failure with 'lock_expired'. With that value, at least one lock was lost and at
# most as many as there were failures. With another reason, the last failure was not a lost lock. Without one, no lock
# was lost. A lost lock on a message in the dead-letter queue may not count as a failure.
MIN_LOCK_LOSSES = "CASE WHEN last_failure = 'lock_expired' THEN 1 ELSE 0 END"
MAX_LOCK_LOSSES = """CASE WHEN last_failure IS NULL THEN 0
             WHEN last_failure = 'lock_expired' THEN greatest(failure_count, 1)
             ELSE greatest(failure_count - 1, 0) END"""


def message_histories(
    archive: DataFrame, messages: DataFrame | None = None, archived_since: date | None = None
) -> DataFrame:
    """Return one row for each known message: when it was sent, how it ended, and the duration of each part.

    `archive` has the columns of `ENDED_MESSAGES`; `messages`, a snapshot, those of `LIVE_MESSAGES`. A message of the
    snapshot that has been archived since counts as archived. `date` and `export_batch` are those of the archive's row,
    else null. If no message of the snapshot ended before the day `archived_since`, only later ones are searched for in
    the archive. `ended` is one of: completed, received, dead_lettered, expired, purged, cancelled; null for messages in
    their queue. It is dead_lettered for messages in the dead-letter queue (since when), and for messages with a reason
    that left it by being received or purged (until when). Times are seconds:

    - `waiting`: from the time it became available to its first delivery; null if a retry delay has overwritten that
      time.
    - `processing`: from the last delivery to completion. The duration of failed deliveries is not known.
    - `end_to_end`: from sending to completion, including any delay that its sender requested.
    """
    ended = fn.expr("CASE WHEN dead_letter_reason IS NULL THEN outcome ELSE 'dead_lettered' END")
    own = ("date", "export_batch")
    histories = archive.withColumn("dead_letter_reason", fn.expr(OWN_REASON)).select(
        *HISTORY_COLUMNS, ended.alias("ended"), fn.col("settled_at").alias("ended_at"), *own
    )
    if messages is not None:
        later = archive if archived_since is None else archive.where(fn.col("date") >= fn.lit(archived_since))
        live = messages.join(later.select("sequence_number"), "sequence_number", "left_anti")
        histories = histories.withColumn("is_live", fn.lit(False)).unionByName(_live(live), allowMissingColumns=True)
    else:
        histories = histories.withColumn("is_live", fn.lit(False))
    times = {name: fn.expr(text) / 1e6 for name, text in zip(TIMES, (WAITING, PROCESSING, END_TO_END), strict=True)}
    losses = {"lock_losses_at_least": fn.expr(MIN_LOCK_LOSSES), "lock_losses_at_most": fn.expr(MAX_LOCK_LOSSES)}
    return histories.withColumns(times | losses)


def _live(messages: DataFrame) -> DataFrame:
    is_dead = fn.col("state") == "dead_lettered"
    reason = fn.coalesce(fn.expr(OWN_REASON), fn.lit(NO_REASON))
    return messages.select(
        *(name for name in HISTORY_COLUMNS if name != "dead_letter_reason"),
        fn.when(is_dead, reason).alias("dead_letter_reason"),
        fn.when(is_dead, fn.lit("dead_lettered")).alias("ended"),
        fn.when(is_dead, fn.col("dead_lettered_at")).alias("ended_at"),
        fn.lit(True).alias("is_live"),
    )


def measures(parts: DataFrame, *by: str) -> DataFrame:
    """Return the columns `MEASURES` of parts of a report for each value of `by`; one row without `by`.

    `redelivered` of the `delivered` messages were delivered more than once (also in their dead-letter queue), and
    `redelivery_share` is their share. `deliveries_per_message` is over messages with a delivery.
    """
    shares = {
        "redelivery_share": fn.try_divide(fn.col("redelivered"), fn.col("delivered")),
        "deliveries_per_message": fn.try_divide(fn.col("deliveries"), fn.col("delivered")),
    }
    places = {time: quantiles(time) for time in TIMES}
    found = {f"{time}_{name}": places[time][place] for time in TIMES for place, name in enumerate(QUANTILES)}
    return merged(parts, *by).withColumns(shares | found).select(*by, *(field.name for field in MEASURES))


def hours(parts: DataFrame) -> DataFrame:
    """The table `HOURS`.

    Most hours of a queue are one part. So parts are brought together first, and not merged before and after that.
    """
    return measures(parts.where("kind = 'queue'").repartition("queue", "hour"), "queue", "hour")


def queues(parts: DataFrame) -> DataFrame:
    """The table `QUEUES`."""
    return measures(parts.where("kind = 'queue'"), "queue")


def reasons(parts: DataFrame) -> DataFrame:
    """The table `REASONS`. The reasons that the parts leave out are summed as `OTHER_REASONS`."""
    named = parts.where("kind = 'reason'").withColumn("reason", fn.coalesce("name", fn.lit(OTHER_REASONS)))
    return named.groupBy("queue", "reason").agg(
        fn.sum("dead_lettered").alias("messages"), fn.sum("live").alias("waiting")
    )


def slowest_groups(parts: DataFrame, limit: int = MAX_GROUPS) -> DataFrame:
    """The table `GROUPS`: at most `limit` groups, the slowest first by `end_to_end_p95`."""
    named = parts.where("kind = 'group' AND name IS NOT NULL")
    measured = merged(named, "queue", "name", size=GROUP_SKETCH_SIZE)
    found = quantiles("end_to_end")
    answer = measured.select(
        "queue",
        fn.col("name").alias("group_id"),
        (fn.col("completed") + fn.col("received")).alias("messages"),
        "redelivered",
        found[0].alias("end_to_end_p50"),
        found[1].alias("end_to_end_p95"),
    )
    return answer.orderBy(fn.desc("end_to_end_p95"), "queue", "group_id").limit(limit)
