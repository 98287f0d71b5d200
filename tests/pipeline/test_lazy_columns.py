"""`source.read` reads bodies and histories only for queries and rows that use them."""

from __future__ import annotations

from typing import Any

import pytest
from peeklock_pipeline import source
from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.table_specs import MESSAGE_COLUMNS
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.faults.database_access import execute
from tests.pipeline.archive import Archive, archived, happened


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    source.register(spark)


def filled(archive: Archive) -> Archive:
    """Two batches: messages 1 to 3 with a history, and 4 to 6 without one, in two queues."""
    rows = [archived(number, queue=("billing", "orders")[number % 2], body=bytes([number])) for number in range(1, 7)]
    archive.seal_with_events(1, rows[:3], [happened(number, number, "sent", state=1) for number in (1, 2, 3)])
    archive.seal(2, rows[3:])
    return archive


def plan(frame: DataFrame) -> str:
    """How Spark runs a query."""
    return str(frame._jdf.queryExecution().executedPlan())


def test_every_column_is_read_as_by_the_format(spark: SparkSession, archive: Archive) -> None:
    filled(archive)
    rows = source.read(spark, databaseUrl=archive.url)
    expected = spark.read.format("peeklock").options(databaseUrl=archive.url, columns="*").load()

    assert rows.columns == [*MESSAGE_COLUMNS]
    order = "sequence_number"
    assert rows.orderBy(order).toArrow().to_pylist() == expected.orderBy(order).toArrow().to_pylist()
    assert source.read(spark, databaseUrl=archive.url, fromBatch="2").count() == 3


def test_bodies_are_read_for_rows_that_remain_and_not_at_all_if_no_query_uses_them(
    spark: SparkSession, small_archive: Archive
) -> None:
    rows = source.read(spark, databaseUrl=filled(small_archive).url)
    execute(small_archive.url, "UPDATE archive SET body = 'changed' WHERE queue = 'billing'")  # reading it would show

    counted, of_orders = rows.groupBy("queue").count(), rows.where("queue = 'orders'").select("body", "history")

    assert "ArrowEvalPython" not in plan(counted)
    assert sorted(counted.collect()) == [("billing", 3), ("orders", 3)]
    assert "ArrowEvalPython" in plan(of_orders)
    found: list[Any] = of_orders.toArrow().to_pylist()
    assert sorted(row["body"] for row in found) == [b"\1", b"\3", b"\5"]
    assert sorted(len(row["history"] or ()) for row in found) == [0, 1, 1]


def test_a_message_that_is_gone_when_its_body_is_read_is_not_taken_for_an_empty_one(
    spark: SparkSession, small_archive: Archive
) -> None:
    rows = source.read(spark, databaseUrl=filled(small_archive).url)
    known = rows.select("sequence_number", "export_batch").localCheckpoint()
    small_archive.delete_message(5)
    body = source.lazy_columns.lazy_column(Database.from_url(small_archive.url), "body")

    with pytest.raises(PySparkException, match="The archive no longer has 1 message of the batches"):
        known.select(body).collect()


def test_of_a_lake_spark_reads_the_columns_in_use(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    export(spark, Database.from_url(filled(small_archive).url), lake)

    rows = source.read(spark, lake=str(lake.root))

    assert rows.columns == [*MESSAGE_COLUMNS]
    assert "ReadSchema: struct<message_id:string>" in plan(rows.select("message_id"))
    assert source.read(spark, lake=str(lake.root), fromBatch="2").count() == 3
