"""The queries of an audit: is each message in its place, once, and nothing else?

A ledger counts by queue and day of sending: accepted = live + dead-lettered + completed + received + expired + purged +
cancelled, without those of queues that keep no archive. The server counts what it accepts, so a lost message is missing from the sum. The sequence number identifies
a message, because the database assigns each number once.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from peeklock_pipeline.digests import digest_of_lines
from peeklock_pipeline.table_specs import MESSAGE_COLUMNS

STANDINGS = ("live", "dead_lettered", "completed", "received", "expired", "purged", "cancelled")
"""The possible states of an accepted message: in its queue, or in the archive with its outcome."""

AUDITED_KEYS = ("queue", "date", "settled_on", "outcome")
"""The columns of `AUDITED` by which it counts."""

BATCH_SCHEMA = pa.schema(
    [
        ("place", pa.string()),
        ("number", pa.int64()),
        ("messages", pa.int64()),
        ("numbers", pa.string()),
        ("rows", pa.string()),
        ("changed", pa.int64()),
    ]
)
"""A batch in the lake or in the archive.

`numbers` is the SHA-256 over the sequence numbers, ascending, each in decimal and followed by a line feed. `rows` is the
SHA-256 over the digests of the rows, in the same order, and of the events, by message and number, each in hexadecimal
and followed by a line feed. `changed` counts messages whose content is not the accepted one.
"""


def unique_messages(placed: DataFrame, exported: int) -> DataFrame:
    """Return these rows without the archive's copies of exported batches, so that each message occurs once."""
    is_copy = (F.col("place") == "archive") & F.coalesce(F.col("export_batch") <= exported, F.lit(False))
    return placed.where(~is_copy)


def duplicates(standings: DataFrame) -> DataFrame:
    """Return the rows of messages that occur more than once, in one place or in several.

    Only sequence numbers are shuffled between executors.
    """
    numbers = standings.groupBy("sequence_number").count().where("count > 1").select("sequence_number")
    return standings.join(numbers, "sequence_number", "left_semi")


def ledger(standings: DataFrame, repeated: DataFrame) -> DataFrame:
    """Count messages by queue and day of sending: `found`, each standing, `surplus` (counted twice), `covered`, `uncounted`.

    `covered` counts the distinct messages in the lake that have a digest of their content. `uncounted` ones have none, in
    any place: servers that computed no digests did not count what they accepted. `repeated` is the result of `duplicates`
    for the same rows.
    """
    day = F.to_date("enqueued_at").alias("date")
    parts = [F.count_if(F.col("standing") == name).alias(name) for name in STANDINGS]
    in_lake = F.col("is_covered") & (F.col("place") == "lake")
    rows, covered_rows = F.count("*").alias("rows"), F.count_if(in_lake).alias("covered_rows")
    uncounted = F.count_if(~F.col("is_covered")).alias("uncounted")
    counted = standings.groupBy("queue", day).agg(*parts, rows, covered_rows, uncounted)
    # Only repeated messages are told apart by their numbers: to do so with all would shuffle every row once more.
    more = F.count("*") - F.count_distinct("sequence_number")
    more_covered = F.count_if(in_lake) - F.count_distinct(F.when(in_lake, F.col("sequence_number")))
    surplus = repeated.groupBy("queue", day).agg(more.alias("surplus"), more_covered.alias("covered_surplus"))
    lines = counted.join(surplus, ["queue", "date"], "left").fillna(0, ["surplus", "covered_surplus"])
    found = (F.col("rows") - F.col("surplus")).alias("found")
    covered = (F.col("covered_rows") - F.col("covered_surplus")).alias("covered")
    return lines.select("queue", "date", found, *STANDINGS, "surplus", covered, "uncounted")


def counts(placed: DataFrame, exported: int) -> DataFrame:
    """Count the lake's messages of batches up to `exported` as `AUDITED` does."""
    in_lake = placed.where((F.col("place") == "lake") & (F.col("export_batch") <= exported))
    days = (F.to_date("enqueued_at").alias("date"), F.col("date").alias("settled_on"))
    found = in_lake.select("queue", *days, F.col("standing").alias("outcome"), "is_covered")
    counted = (F.count("*").alias("messages"), F.count_if("is_covered").alias("covered"))
    return found.groupBy(*AUDITED_KEYS).agg(*counted)


def added(earlier: DataFrame, later: DataFrame) -> DataFrame:
    """Add up counts of different messages."""
    sums = (F.sum("messages").alias("messages"), F.sum("covered").alias("covered"))
    return earlier.unionByName(later).groupBy(*AUDITED_KEYS).agg(*sums)


def left_of(counts: DataFrame, removed: DataFrame) -> DataFrame:
    """Return the counts without those that the lake's retention removed: it removes whole days of a queue."""
    days = removed.select("queue", F.col("date").alias("settled_on")).distinct()
    return counts.join(days, ["queue", "settled_on"], "left_anti").select(*counts.columns)


def with_earlier(ledger: DataFrame, counts: DataFrame) -> DataFrame:
    """Return a ledger that has the messages of these counts as well, in lines of their own."""
    parts = [F.sum(F.when(F.col("outcome") == name, F.col("messages")).otherwise(0)).alias(name) for name in STANDINGS]
    uncounted = (F.sum("messages") - F.sum("covered")).alias("uncounted")
    sums = (
        F.sum("messages").alias("found"),
        *parts,
        F.lit(0).alias("surplus"),
        F.sum("covered").alias("covered"),
        uncounted,
    )
    return ledger.unionByName(counts.groupBy("queue", "date").agg(*sums))


def expected_in_lake(accounts: DataFrame, removed: DataFrame, opening: DataFrame) -> DataFrame:
    """Count the messages with digests that the lake has to hold, by queue and day of sending, in several lines.

    These are what the server accepted, without what the database holds (`ACCOUNTS`), what the lake's retention removed,
    and what was gone before the lake began to count.
    """
    gone = removed.where("covered > 0").select("queue", F.col("accepted_on").alias("date"), -F.col("covered"))
    left = accounts.select("queue", "date", (F.col("accepted") - F.col("unarchived") - F.col("held")).alias("messages"))
    return left.union(gone).union(opening.select("queue", "date", -F.col("messages")))


def ledger_lines(ledger: DataFrame, expected: DataFrame | None) -> DataFrame:
    """Return a line of the ledger for each queue and day, with `accepted` and `missing`.

    `expected` is the result of `expected_in_lake`; None if it is not known, and nothing is missing then. Below zero, more
    was found than accepted.
    """
    names = ("found", *STANDINGS, "surplus", "uncounted")
    nothing = [F.lit(0).alias(name) for name in names]
    parts = ledger.select(
        "queue", "date", *names, (F.lit(0) if expected is None else -F.col("covered")).alias("missing")
    )
    if expected is not None:
        parts = parts.union(expected.select("queue", "date", *nothing, "messages"))
    sums = parts.groupBy("queue", "date").agg(*(F.sum(name).alias(name) for name in (*names, "missing")))
    accepted = (F.col("found") + F.col("missing")).alias("accepted")
    lines = sums.where("found <> 0 OR surplus <> 0 OR missing <> 0")
    return lines.select("queue", "date", accepted, *STANDINGS, "surplus", "missing", "uncounted")


def message_locations(repeated: DataFrame) -> DataFrame:
    """Return each message of `duplicates`: how often it occurs, and with which standings."""
    return repeated.groupBy("sequence_number").agg(
        F.count("*").alias("times"),
        F.first("queue").alias("queue"),
        F.first("message_id").alias("message_id"),
        F.array_join(F.sort_array(F.collect_set("standing")), " and ").alias("standing"),
    )


def batches(rows: DataFrame, events: DataFrame) -> DataFrame:
    """Return the message count of each batch in each place, and its digests as the server computes them (`BATCH_SCHEMA`).

    `rows` are `LOCATED_ROWS`, `events` are `EVENT_DIGESTS`. A task holds one batch at a time.
    """
    by_batch = ("place", "export_batch")
    digested = rows.select(*by_batch, "sequence_number", "row_digest", "is_as_accepted").groupBy(*by_batch)
    return digested.cogroup(events.groupBy(*by_batch)).applyInArrow(batch_of, from_arrow_schema(BATCH_SCHEMA))


def batch_of(rows: pa.Table, events: pa.Table) -> pa.Table:
    """Return a batch; none if no message has these events."""
    if not rows.num_rows:
        return BATCH_SCHEMA.empty_table()
    ascending = rows.sort_by([("sequence_number", "ascending"), ("row_digest", "ascending")])
    in_order = events.sort_by([(name, "ascending") for name in ("sequence_number", "event_number", "event_digest")])
    batch = {
        "place": rows["place"][0].as_py(),
        "number": rows["export_batch"][0].as_py(),
        "messages": rows.num_rows,
        "numbers": digest_of_lines([ascending["sequence_number"]]),
        "rows": digest_of_lines([ascending["row_digest"], in_order["event_digest"]]),
        "changed": pc.sum(pc.invert(rows["is_as_accepted"])).as_py() or 0,
    }
    return pa.Table.from_pylist([batch], schema=BATCH_SCHEMA)


def changed_contents(placed: DataFrame) -> DataFrame:
    """Return messages whose content is not the accepted one, by the digest that travels with it."""
    named = ("sequence_number", "place", "queue", "message_id", "export_batch")
    return placed.where(~F.col("is_as_accepted")).select(*named).orderBy("sequence_number", "place")


def removed_by_batch(removed: DataFrame) -> DataFrame:
    """Count the messages of each batch that the lake's retention has removed."""
    return removed.groupBy(F.col("export_batch").alias("number")).agg(F.sum("messages").alias("messages"))


def in_one_place_only(placed: DataFrame, both: Sequence[int], unexpected: Mapping[str, Sequence[int]]) -> DataFrame:
    """Return messages that only the lake or only the archive has, of batches that `both` should have.

    Also returns every message of the batches that are `unexpected` in a place.
    """
    number, place = F.col("export_batch"), F.col("place")
    unmatched = [(place == name) & number.isin(*numbers) for name, numbers in unexpected.items() if numbers]
    alike = placed.where(number.isin(*both) & place.isin("lake", "archive"))
    alone = alike.groupBy("export_batch", "sequence_number").agg(F.count_distinct("place").alias("places"), *_first())
    named = ("export_batch", "sequence_number", "place", "queue", "message_id")
    found = alone.where("places = 1").select(*named)
    if unmatched:
        found = found.unionByName(placed.where(reduce(or_, unmatched)).select(*named))
    return found.orderBy("sequence_number")


def _first() -> list[Column]:
    return [F.first(name).alias(name) for name in ("place", "queue", "message_id")]


def differing_rows(lake: DataFrame, archive: DataFrame) -> DataFrame:
    """Return messages whose rows differ between lake and archive, and the differing columns."""
    keys = ("export_batch", "sequence_number")
    names = [name for name in MESSAGE_COLUMNS if name not in keys]
    other = archive.select(*keys, *(F.col(name).alias(f"other_{name}") for name in names))
    differing = [F.when(~F.col(name).eqNullSafe(F.col(f"other_{name}")), F.lit(name)) for name in names]
    columns = F.array_join(F.array_compact(F.array(*differing)), ", ").alias("columns")
    rows = lake.join(other, list(keys)).select(*keys, "queue", "message_id", columns)
    return rows.where("columns <> ''").orderBy("sequence_number")


def missing(expected: DataFrame, there: DataFrame, *keys: str) -> DataFrame:
    """Return the rows of `expected` that are not in the other DataFrame, by these columns."""
    return expected.join(there, list(keys), "anti")
