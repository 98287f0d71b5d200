"""A stream of a lake that is merged into a table of its own, as in the guide, and whose driver crashes in its second
micro-batch: `python -m tests.pipeline.crashing_merge MOMENT LAKE TABLE CHECKPOINT [STORAGE_OPTION ...]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial

from deltalake import DeltaTable, write_deltalake
from peeklock_pipeline import source
from peeklock_pipeline.session import open_session
from peeklock_pipeline.storage import parse_options
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tests.pipeline.crashing_export import CRASH_EXIT_CODE

TIMEOUT_SECONDS = 600.0


def follow(
    spark: SparkSession, moment: str, lake: str, table: str, checkpoint: str, options: Mapping[str, str]
) -> None:
    """Merge what is new in the lake into the table, batch by batch."""
    source.register(spark)
    given = {"lake": lake, "maxBatchesPerTrigger": "1", **{f"storage.{name}": options[name] for name in options}}
    rows = spark.readStream.format("peeklock").options(**given).load()
    writer = rows.writeStream.foreachBatch(partial(merge, moment, table, dict(options)))
    query = source.begin(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start)
    assert query.awaitTermination(TIMEOUT_SECONDS)


def merge(moment: str, table: str, options: dict[str, str], rows: DataFrame, number: int) -> None:
    """Add the counts of a micro-batch. The table remembers the last batch of each queue that it counted."""
    crashes = number == 1 and moment != "never"
    new = rows.groupBy("queue").agg(fn.count("*"), fn.max("export_batch")).toDF("name", "messages", "last").toArrow()
    if crashes and moment == "before_the_commit":
        os._exit(CRASH_EXIT_CODE)
    if not DeltaTable.is_deltatable(table, options):
        write_deltalake(table, new.slice(0, 0), storage_options=options)
    (
        DeltaTable(table, storage_options=options)
        .merge(new, "mine.name = new.name", source_alias="new", target_alias="mine")
        .when_matched_update(
            {"messages": "mine.messages + new.messages", "last": "new.last"}, predicate="mine.last < new.last"
        )
        .when_not_matched_insert_all()
        .execute()
    )
    if crashes:
        os._exit(CRASH_EXIT_CODE)


if __name__ == "__main__":
    moment, lake, table, checkpoint, *options = sys.argv[1:]
    follow(open_session("local[2]"), moment, lake, table, checkpoint, parse_options(options))
