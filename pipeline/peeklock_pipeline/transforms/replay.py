"""Selects the messages of a replay, counts them in ranges, and turns them into new messages."""

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from peeklock_pipeline.refusals import BadExpression
from peeklock_pipeline.table_specs import ARCHIVE, HEADERS, TableSpec

RANGES = 4096
"""Ranges of sequence numbers that are counted, independent of the number of messages."""


def narrowed(where: str, *more: str) -> TableSpec:
    """Return the archive with only the columns that an expression names, those that select a portion, and `more`.

    A name that the expression has as a text keeps its column as well, and `*` keeps all.
    """
    words, wanted = where.lower(), {"sequence_number", "export_batch", *more}
    return ARCHIVE.with_columns(
        *(name for name in ARCHIVE.schema.names if "*" in words or name in wanted or name in words)
    )


def matching(archive: DataFrame, where: str, last_batch: int) -> DataFrame:
    """Return the messages of batches up to `last_batch` for which an expression over the archive's columns is true.

    Refuses with `BadExpression`.
    """
    try:
        return archive.where(where).where(fn.col("export_batch") <= last_batch)
    except (AnalysisException, ParseException) as error:
        columns = ", ".join(archive.columns)
        raise BadExpression(
            f"The filter {where!r} is refused: {_error_text(error)} The columns are {columns}."
        ) from error


def counted_ranges(messages: DataFrame) -> DataFrame:
    """Count the messages in each of at most `RANGES` ranges of sequence numbers, about."""
    number = fn.col("sequence_number")
    bounds = messages.agg(fn.min(number).alias("lowest"), fn.max(number).alias("highest"))
    width = fn.expr(f"(highest - lowest) div {RANGES} + 1")
    placed = messages.select("sequence_number").crossJoin(fn.broadcast(bounds))
    range_index = ((number - fn.col("lowest")) / width).cast("bigint")
    counts = (fn.min(number).alias("first"), fn.max(number).alias("last"), fn.count("*").alias("messages"))
    return placed.groupBy(range_index.alias("range_index")).agg(*counts).orderBy("range_index")


def outgoing(messages: DataFrame, replay: str) -> DataFrame:
    """Return archived messages as they are sent again, with a message id of this replay and their origin."""
    return messages.select(
        "sequence_number",
        fn.concat(fn.lit(f"replay:{replay}:"), fn.col("sequence_number").cast("string")).alias("message_id"),
        "body",
        "body_kind",
        "group_id",
        fn.col("priority").cast("int").alias("priority"),
        _properties(replay).alias("properties"),
        *(fn.get_json_object("headers", f"$.{name}").alias(name) for name in HEADERS),
    )


def _properties(replay: str) -> Column:
    """Return the sender's properties, followed by the lineage, which replaces an earlier one."""
    lineage = fn.to_json(
        fn.struct(
            fn.col("queue").alias("replayed_from_queue"),
            fn.col("sequence_number").alias("replayed_sequence_number"),
            fn.col("message_id").alias("replayed_message_id"),
            fn.lit(replay).alias("replay_name"),
        )
    )
    own = fn.regexp_replace("properties", r"\s*\}\s*$", "")
    has_own = fn.length(fn.regexp_replace(own, r"^\s*\{\s*", "")) > 0
    return fn.when(has_own, fn.concat(own, fn.lit(","), fn.substring(lineage, 2, 1 << 30))).otherwise(lineage)


def _error_text(error: AnalysisException | ParseException) -> str:
    """Return the first sentence of Spark's error, without its code."""
    first = str(error).strip().splitlines()[0]
    return first.partition("] ")[2].partition(" SQLSTATE")[0] or first
