"""A senders' log: the ids of the messages that were sent, and those of them that were not found."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from peeklock_pipeline.jobs.findings import Finding, LimitedFindings, limit_rows
from peeklock_pipeline.refusals import BadOption
from peeklock_pipeline.transforms.audit import missing


@dataclass(frozen=True, slots=True)
class Absent:
    """The `expected` messages of a log that were not found: those that are `lost`, or how many may be lost (`unknown`)."""

    expected: int = 0
    unknown: int = 0
    lost: LimitedFindings = field(default_factory=lambda: ([], 0))


def absent_from(expected: DataFrame, found_ids: DataFrame, without_ids: int) -> Absent:
    """Return the expected messages that are not among `found_ids`.

    Of `without_ids` messages only the number is known. If no more messages than these are absent, none is named as lost.
    Otherwise each is named, because at least one of them is lost.
    """
    absent, sent = missing(expected, found_ids, "message_id"), expected.count()
    if without_ids and (count := absent.count()) <= without_ids:
        return Absent(sent, count)
    return Absent(sent, lost=limit_rows(absent, partial(_lost_finding, without_ids)))


def _lost_finding(without_ids: int, row: Row) -> Finding:
    doubt = f"; it may be one of {without_ids} messages of which only the number is known" if without_ids else ""
    return Finding(f"was sent, but is missing{doubt}", message_id=row.message_id)


def sent_ids(spark: SparkSession, log: Path) -> DataFrame:
    """Return the message ids of a senders' log. Refuses with `BadOption`."""
    if not log.is_file():
        raise BadOption(f"No file {log} with the ids of sent messages exists.")
    lines = spark.read.text(str(log.absolute())).where("trim(value) <> ''")
    text = F.when(F.col("value").startswith('"'), F.get_json_object(F.concat(F.lit("["), "value", F.lit("]")), "$[0]"))
    ids = lines.select(F.coalesce(text, F.get_json_object("value", "$.message_id")).alias("message_id"), "value")
    if wrong := ids.where("message_id IS NULL").first():
        raise BadOption(f"{log} has a line that names no message: {wrong.value[:100]}")
    return ids.select("message_id").distinct()
