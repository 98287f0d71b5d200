"""What an audit asks: is each message where it should be, once, and nothing else?

A ledger counts by queue and day of sending: accepted = live + dead-lettered + completed + received + expired + purged +
cancelled. A message is told from all others by its sequence number, which the database gives out once.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from peeklock_pipeline.columns import PLACED

STANDINGS = ("live", "dead_lettered", "completed", "received", "expired", "purged", "cancelled")
"""Where an accepted message may be: in its queue, or in the archive with its outcome."""


def ended(archive: DataFrame) -> DataFrame:
    """The rows of the lake's archive as `PLACED` has them."""
    told = archive.withColumns({"standing": F.col("outcome"), "place": F.lit("lake")})
    return told.select(*PLACED.schema.names)


def once(placed: DataFrame, exported: int) -> DataFrame:
    """Of these rows, those among which each message stands once: the archive's copies of exported batches are left out."""
    is_copy = (F.col("place") == "archive") & F.coalesce(F.col("export_batch") <= exported, F.lit(False))
    return placed.where(~is_copy)


def twofold(standings: DataFrame) -> DataFrame:
    """Of these, those of messages that stand in more than one place, or in one place more than once.

    Only the numbers of messages change places for that between executors.
    """
    numbers = standings.groupBy("sequence_number").count().where("count > 1").select("sequence_number")
    return standings.join(numbers, "sequence_number", "left_semi")


def ledger(standings: DataFrame, repeated: DataFrame) -> DataFrame:
    """By queue and day of sending: how many were accepted, where they are, and `surplus`, what is counted twice.

    `repeated` is what is `twofold` among them.
    """
    day = F.to_date("enqueued_at").alias("date")
    parts = [F.count_if(F.col("standing") == name).alias(name) for name in STANDINGS]
    counted = standings.groupBy("queue", day).agg(*parts, F.count("*").alias("counted"))
    more = (F.count("*") - F.count_distinct("sequence_number")).alias("surplus")
    surplus = repeated.groupBy("queue", day).agg(more)
    lines = counted.join(surplus, ["queue", "date"], "left").fillna(0, ["surplus"])
    accepted = (F.col("counted") - F.col("surplus")).alias("accepted")
    return lines.select("queue", "date", accepted, *STANDINGS, "surplus").orderBy("queue", "date")


def places(repeated: DataFrame) -> DataFrame:
    """The messages that are `twofold`: how many times each is there, and as what."""
    return repeated.groupBy("sequence_number").agg(
        F.count("*").alias("times"),
        F.first("queue").alias("queue"),
        F.first("message_id").alias("message_id"),
        F.array_join(F.sort_array(F.collect_set("standing")), " and ").alias("standing"),
    )


def batches(rows: DataFrame, *by: str) -> DataFrame:
    """What each batch is made of here: its messages, counted, and the digest as the server computes it.

    That is the SHA-256 over the sequence numbers, ascending, each in decimal and followed by a line feed.
    """
    ascending = F.sort_array(F.collect_list("sequence_number"))
    lines = F.concat(F.array_join(F.transform(ascending, lambda number: number.cast("string")), "\n"), F.lit("\n"))
    return rows.groupBy(*by, F.col("export_batch").alias("number")).agg(
        F.count("*").alias("messages"), F.sha2(lines, 256).alias("digest")
    )


def taken(removed: DataFrame) -> DataFrame:
    """How many messages of each batch the lake's retention has removed."""
    return removed.groupBy(F.col("export_batch").alias("number")).agg(F.sum("messages").alias("messages"))


def apart(placed: DataFrame, both: Sequence[int], strange: Mapping[str, Sequence[int]]) -> DataFrame:
    """Messages that either the lake or the archive has alone, of batches that `both` should have alike.

    And every message that a place has of batches that are `strange` to it.
    """
    number, place = F.col("export_batch"), F.col("place")
    odd = [(place == name) & number.isin(*numbers) for name, numbers in strange.items() if numbers]
    alike = placed.where(number.isin(*both) & place.isin("lake", "archive"))
    alone = alike.groupBy("export_batch", "sequence_number").agg(F.count_distinct("place").alias("places"), *_first())
    named = ("export_batch", "sequence_number", "place", "queue", "message_id")
    found = alone.where("places = 1").select(*named)
    if odd:
        found = found.unionByName(placed.where(reduce(or_, odd)).select(*named))
    return found.orderBy("sequence_number")


def _first() -> list[Column]:
    return [F.first(name).alias(name) for name in ("place", "queue", "message_id")]


def missing(expected: DataFrame, there: DataFrame, *keys: str) -> DataFrame:
    """Rows of one that the other has not, by these columns."""
    return expected.join(there, list(keys), "anti")
