"""What an audit asks: is each message where it should be, once, and nothing else?

A ledger counts by queue and day of sending: accepted = live + dead-lettered + completed + received + expired + purged +
cancelled. The server counts what it accepts, so that a lost message is missing from the sum. A message is told from all others by its sequence number, which the database gives out once.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from peeklock_pipeline.table_specs import ARCHIVE, LOCATED_ROWS
from peeklock_pipeline.transforms import digests

STANDINGS = ("live", "dead_lettered", "completed", "received", "expired", "purged", "cancelled")
"""Where an accepted message may be: in its queue, or in the archive with its outcome."""


def archived_rows(archive: DataFrame) -> DataFrame:
    """The rows of the lake's archive as `LOCATED_ROWS` has them."""
    nothing = {name: F.lit(None).cast("string") for name in ("body_sha256", "content_found")}
    return with_digests(archive.withColumns({"standing": F.col("outcome"), "place": F.lit("lake"), **nothing}))


def with_digests(rows: DataFrame) -> DataFrame:
    """Rows of the lake, or of the database (`STORED_ROWS`), as `LOCATED_ROWS` has them: their digests taken again."""
    own = digests.hexadecimal(F.col("content_digest"))
    found = F.coalesce("content_found", digests.content_digest())
    taken = {
        "is_covered": F.col("content_digest").isNotNull(),
        "is_as_accepted": own == found,
        "row_digest": F.when(F.col("place") != "queue", digests.row_digest()),
    }
    return rows.withColumns(taken).select(*LOCATED_ROWS.schema.names)


def unique_messages(placed: DataFrame, exported: int) -> DataFrame:
    """Of these rows, those among which each message stands once: the archive's copies of exported batches are left out."""
    is_copy = (F.col("place") == "archive") & F.coalesce(F.col("export_batch") <= exported, F.lit(False))
    return placed.where(~is_copy)


def duplicates(standings: DataFrame) -> DataFrame:
    """Of these, those of messages that stand in more than one place, or in one place more than once.

    Only the numbers of messages change places for that between executors.
    """
    numbers = standings.groupBy("sequence_number").count().where("count > 1").select("sequence_number")
    return standings.join(numbers, "sequence_number", "left_semi")


def ledger(standings: DataFrame, repeated: DataFrame) -> DataFrame:
    """By queue and day of sending: where messages are, `surplus`, what is counted twice, and `covered`.

    That is how many the lake has, each once, of those with a digest of their content. `repeated` is what is `duplicates`
    among them.
    """
    day = F.to_date("enqueued_at").alias("date")
    parts = [F.count_if(F.col("standing") == name).alias(name) for name in STANDINGS]
    in_lake = F.col("is_covered") & (F.col("place") == "lake")
    covered = F.count_distinct(F.when(in_lake, F.col("sequence_number"))).alias("covered")
    counted = standings.groupBy("queue", day).agg(*parts, F.count("*").alias("counted"), covered)
    more = (F.count("*") - F.count_distinct("sequence_number")).alias("surplus")
    surplus = repeated.groupBy("queue", day).agg(more)
    lines = counted.join(surplus, ["queue", "date"], "left").fillna(0, ["surplus"])
    found = (F.col("counted") - F.col("surplus")).alias("found")
    return lines.select("queue", "date", found, *STANDINGS, "surplus", "covered").orderBy("queue", "date")


def message_locations(repeated: DataFrame) -> DataFrame:
    """The messages that are `duplicates`: how many times each is there, and as what."""
    return repeated.groupBy("sequence_number").agg(
        F.count("*").alias("times"),
        F.first("queue").alias("queue"),
        F.first("message_id").alias("message_id"),
        F.array_join(F.sort_array(F.collect_set("standing")), " and ").alias("standing"),
    )


def batches(rows: DataFrame, *by: str) -> DataFrame:
    """What each batch is made of here: its messages, counted, and its digests as the server computes them.

    `numbers` is the SHA-256 over the sequence numbers, ascending, each in decimal and followed by a line feed; `rows`
    that over the digests of the rows, in the same order, each in hexadecimal and followed by a line feed. `changed` counts
    messages that do not have the content that was accepted.
    """
    ascending = F.sort_array(F.collect_list(F.struct("sequence_number", "row_digest")))
    numbers = F.transform(ascending, lambda row: row["sequence_number"].cast("string"))
    row_digests = F.transform(ascending, lambda row: row["row_digest"])
    return rows.groupBy(*by, F.col("export_batch").alias("number")).agg(
        F.count("*").alias("messages"),
        _digest_of_lines(numbers).alias("numbers"),
        _digest_of_lines(row_digests).alias("rows"),
        F.count_if(~F.col("is_as_accepted")).alias("changed"),
    )


def _digest_of_lines(texts: Column) -> Column:
    return F.sha2(F.concat(F.array_join(texts, "\n"), F.lit("\n")), 256)


def changed_contents(placed: DataFrame) -> DataFrame:
    """Messages whose content is not what was accepted, by the digest that travels with it."""
    named = ("sequence_number", "place", "queue", "message_id", "export_batch")
    return placed.where(~F.col("is_as_accepted")).select(*named).orderBy("sequence_number", "place")


def removed_by_batch(removed: DataFrame) -> DataFrame:
    """How many messages of each batch the lake's retention has removed."""
    return removed.groupBy(F.col("export_batch").alias("number")).agg(F.sum("messages").alias("messages"))


def removed_by_day(removed: DataFrame) -> DataFrame:
    """How many messages with digests the lake's retention has removed, by queue and day of sending."""
    day = F.col("accepted_on").alias("date")
    return removed.where("covered > 0").groupBy("queue", day).agg(F.sum("covered").alias("messages"))


def in_one_place_only(placed: DataFrame, both: Sequence[int], unexpected: Mapping[str, Sequence[int]]) -> DataFrame:
    """Messages that either the lake or the archive has alone, of batches that `both` should have alike.

    And every message that a place has of batches that are `unexpected` there.
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
    """Messages of which lake and archive have different rows, and in which columns."""
    keys = ("export_batch", "sequence_number")
    names = [name for name in ARCHIVE.schema.names if name not in keys]
    other = archive.select(*keys, *(F.col(name).alias(f"other_{name}") for name in names))
    differing = [F.when(~F.col(name).eqNullSafe(F.col(f"other_{name}")), F.lit(name)) for name in names]
    columns = F.array_join(F.array_compact(F.array(*differing)), ", ").alias("columns")
    rows = lake.join(other, list(keys)).select(*keys, "queue", "message_id", columns)
    return rows.where("columns <> ''").orderBy("sequence_number")


def missing(expected: DataFrame, there: DataFrame, *keys: str) -> DataFrame:
    """Rows of one that the other has not, by these columns."""
    return expected.join(there, list(keys), "anti")
