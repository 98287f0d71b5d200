"""What an audit asks: is each message where it should be, once, and nothing else?

A ledger counts by queue and day of sending: accepted = live + dead-lettered + completed + received + expired + purged +
cancelled. A message is told from all others by its sequence number, which the database gives out once.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

STANDINGS = ("live", "dead_lettered", "completed", "received", "expired", "purged", "cancelled")
"""Where an accepted message may be: in its queue, or in the archive with its outcome."""


def ended(archive: DataFrame) -> DataFrame:
    """Messages of the archive as standings: how they ended."""
    return archive.select("sequence_number", "queue", "message_id", "enqueued_at", F.col("outcome").alias("standing"))


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


def batches(archive: DataFrame) -> DataFrame:
    """What each batch is made of here: its messages, counted, and the digest as the server computes it.

    That is the SHA-256 over the sequence numbers, ascending, each in decimal and followed by a line feed.
    """
    ascending = F.sort_array(F.collect_list("sequence_number"))
    lines = F.concat(F.array_join(F.transform(ascending, lambda number: number.cast("string")), "\n"), F.lit("\n"))
    return archive.groupBy(F.col("export_batch").alias("number")).agg(
        F.count("*").alias("messages"), F.sha2(lines, 256).alias("digest")
    )


def differing(sealed: DataFrame, found: DataFrame, removed: DataFrame) -> DataFrame:
    """Batches of which there is not what was sealed, less what the lake's retention has removed.

    `sealed` has number, row_count and digest, `found` is from `batches`, `removed` has number and messages. Columns: number,
    row_count (null where nothing was sealed under this number), messages, removed.
    """
    gone = removed.groupBy("number").agg(F.sum("messages").alias("removed"))
    stated = sealed.withColumnRenamed("digest", "sealed_digest")
    joined = stated.join(found, "number", "full").join(gone, "number", "left").fillna(0, ["messages", "removed"])
    has_all = F.col("row_count").eqNullSafe(F.col("messages") + F.col("removed"))
    has_others = (F.col("removed") == 0) & (F.col("digest") != F.col("sealed_digest"))
    return joined.where(~has_all | has_others).select("number", "row_count", "messages", "removed").orderBy("number")


def missing(expected: DataFrame, there: DataFrame, *keys: str) -> DataFrame:
    """Rows of one that the other has not, by these columns."""
    return expected.join(there, list(keys), "anti")
