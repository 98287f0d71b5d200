"""The data source reads a lake as it reads the server: all of it, or as it grows, each message once."""

from __future__ import annotations

import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from peeklock_pipeline import source
from peeklock_pipeline.conditions import Condition, batches_between
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import DataFile
from peeklock_pipeline.jobs.compact import compact
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.retention import retention
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.refusals import BadLake, BatchesLost
from peeklock_pipeline.source.lake_archive import TASK_BYTES, TASK_FILES, grouped
from peeklock_pipeline.source.lake_files import files_with
from peeklock_pipeline.source.options import ReadOptions
from peeklock_pipeline.source.reading import ArchiveReader, FilteringReader
from peeklock_pipeline.table_specs import ARCHIVE
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan

from tests.pipeline.archive import DAY, NOON, Archive, archived, happened
from tests.pipeline.object_store import ObjectStore

FIRST_DAY = date(2026, 9, 21)
NEXT_DAY = FIRST_DAY + timedelta(days=1)
TIMEOUT_SECONDS = 600.0


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    source.register(spark)


def seal(archive: Archive, *batches: int) -> None:
    """Seal batches of three messages: batch 2 has 4 to 6. Even batches ended on the second day, odd messages in orders."""
    for batch in batches:
        rows = [
            archived(
                number, queue=("billing", "orders")[number % 2], settled_at=NOON + (batch + 1) % 2 * DAY, body=b"\0\xff"
            )
            for number in range(batch * 3 - 2, batch * 3 + 1)
        ]
        archive.seal_with_events(batch, rows, [happened(batch, batch * 3, "sent", state=1)])


def exported(spark: SparkSession, archive: Archive, lake: Lake, *batches: int) -> None:
    """Seal batches and export them, each by an export of its own."""
    for batch in batches:
        seal(archive, batch)
        export(spark, Database.from_url(archive.url), lake)


def tidied(spark: SparkSession, lake: Lake) -> None:
    """Compact the lake and remove the files that were replaced, as a vacuum does when they are old enough."""
    compact(spark, lake)
    lake.archive_table().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def reading(spark: SparkSession, **options: Any) -> DataFrame:
    return spark.read.format("peeklock").options(**options).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row.sequence_number for row in frame.select("sequence_number").collect())


def test_a_lake_is_read_as_the_server_is(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    exported(spark, small_archive, lake, 1, 2, 3)

    def rows(**options: Any) -> list[Any]:
        return reading(spark, columns="*", **options).orderBy("sequence_number").toArrow().to_pylist()

    expected = rows(databaseUrl=small_archive.url)
    assert rows(lake=str(lake.root)) == expected
    assert rows(lake=str(lake.root), fromBatch=3) == expected[6:]
    assert len(expected) == 9
    tidied(spark, lake)
    assert rows(lake=str(lake.root)) == expected
    few = spark.read.schema("message_id string, queue string").format("peeklock").option("lake", str(lake.root)).load()
    assert few.where("queue = 'orders' AND message_id > 'id-6'").collect() == [("id-7", "orders"), ("id-9", "orders")]


def test_files_without_rows_that_can_pass_are_not_opened(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    exported(spark, small_archive, lake, 1, 2, 3)
    options = ReadOptions.of({"lake": str(lake.root)})
    reader = FilteringReader(options, options.schema())
    reader.pushFilters([EqualTo(("date",), NEXT_DAY), EqualTo(("queue",), "orders"), GreaterThan(("export_batch",), 1)])
    [task] = reader.partitions()
    [rows] = list(reader.read(task))
    assert rows["sequence_number"].to_pylist() == [5]
    assert all("2026-09-22" in file.path for file in task.files)
    assert len(files_with(lake.archive_table(), ())) >= 3


def test_a_file_that_is_gone_is_named(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    exported(spark, small_archive, lake, 1)
    options = ReadOptions.of({"lake": str(lake.root)})
    reader = ArchiveReader(options, options.schema())
    [task] = reader.partitions()
    for file in Path(str(lake.directory(ARCHIVE))).rglob("*.parquet"):
        file.unlink()

    with pytest.raises(BatchesLost, match="If a compaction replaced it and a vacuum removed it meanwhile, read again"):
        list(reader.read(task))


def test_a_file_that_was_replaced_by_one_of_another_size_is_not_read(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    exported(spark, small_archive, lake, 1)
    options = ReadOptions.of({"lake": str(lake.root)})
    reader = ArchiveReader(options, options.schema())
    [task] = reader.partitions()
    [file] = map(Path, lake.archive_table().file_uris())
    rows = pq.ParquetFile(file).read()
    pq.write_table(rows.slice(1), file)

    with pytest.raises(BatchesLost, match=f"{file.name} was replaced: it has 2 messages"):
        list(reader.read(task))
    with pytest.raises(BadLake, match=f"{file.name} was replaced: it has 2 messages"):
        source.duckdb_views(duckdb.connect(), lake)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"databaseUrl": "sqlite:////tmp/x.db"}, "reads a database or a lake: set databaseUrl or lake"),
        ({}, "nothing was exported to it"),
    ],
)
def test_what_is_no_place_to_read_is_refused(
    spark: SparkSession, lake: Lake, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException, match=sentence):
        reading(spark, lake=str(lake.root), **options).count()


def test_tasks_have_files_of_a_bounded_size_and_number() -> None:
    large = [DataFile(str(number), {}, 1, TASK_BYTES // 2) for number in range(5)]
    assert [len(files) for files in grouped(large)] == [2, 2, 1]
    assert [len(files) for files in grouped([DataFile("one", {}, 1, TASK_BYTES * 9)])] == [1]
    assert [len(files) for files in grouped([DataFile("small", {}, 1, 1)] * (TASK_FILES + 1))] == [TASK_FILES, 1]
    assert list(grouped([])) == []


def test_a_file_is_skipped_by_what_the_log_says_of_it(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    exported(spark, small_archive, lake, 1, 2, 3)
    compact(spark, lake)  # which writes the least and the greatest value of each column into the log
    table = lake.archive_table()
    days = [file.partition["date"] for file in files_with(table, batches_between(1, 1))]
    assert set(days) == {str(FIRST_DAY)}
    day_after = Condition("settled_at", ">=", (NOON + DAY // 2,))
    assert {file.partition["date"] for file in files_with(table, [day_after])} == {str(NEXT_DAY)}
    assert files_with(table, batches_between(4, 9)) == []


class Following:
    """A stream of a lake, whose micro-batches are kept by their number, as a sink that discards repeated output."""

    def __init__(self, spark: SparkSession, lake: Lake, directory: Path) -> None:
        self.spark = spark
        self.lake = lake
        self.checkpoint = directory / "checkpoint"
        self.sink: dict[int, list[int]] = {}

    def run(self, **options: Any) -> list[int]:
        """Read to the end of the lake; returns all that has arrived so far."""
        frame = self.spark.readStream.format("peeklock").options(lake=str(self.lake.root), **options).load()

        def keep(rows: DataFrame, number: int) -> None:
            self.sink[number] = numbers(rows)

        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.checkpoint))
        query = source.begin(writer.trigger(availableNow=True).start)
        assert query.awaitTermination(TIMEOUT_SECONDS)
        return sorted(number for rows in self.sink.values() for number in rows)

    def forget_last_commit(self) -> None:
        """As if the query had died before it could record the end of its last micro-batch."""
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        for file in (last, last.with_name(f".{last.name}.crc")):
            file.unlink()


def test_a_stream_of_a_lake_brings_each_message_once_while_its_files_change(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    following = Following(spark, lake, tmp_path)
    exported(spark, small_archive, lake, 1, 2, 3)

    assert following.run(maxBatchesPerTrigger=2) == list(range(1, 10))
    assert list(map(len, following.sink.values())) == [6, 3]
    tidied(spark, lake)
    following.forget_last_commit()
    exported(spark, small_archive, lake, 4)
    assert following.run(maxBatchesPerTrigger=2) == list(range(1, 13))
    assert list(map(len, following.sink.values())) == [6, 3, 3]
    tidied(spark, lake)
    assert following.run() == list(range(1, 13))


def test_a_stream_of_a_lake_refuses_to_miss_what_retention_removed(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    following = Following(spark, lake, tmp_path)
    exported(spark, small_archive, lake, 1)
    following.run()
    exported(spark, small_archive, lake, 2, 3)
    assert retention(spark, lake, NEXT_DAY, ["orders"]).messages == 4
    tidied(spark, lake)

    with pytest.raises(PySparkException, match="2 messages of the batches 3 to 3 are gone from"):
        following.run()
    assert following.run(failOnDataLoss="false") == [1, 2, 3, 4, 5, 6, 8]


def test_a_new_stream_of_a_lake_begins_with_what_is_left(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    exported(spark, small_archive, lake, 1, 2)
    seal(small_archive, 3)
    small_archive.remove(3, "expired")
    exported(spark, small_archive, lake, 4)
    retention(spark, lake, NEXT_DAY, ["orders"])
    following = Following(spark, lake, tmp_path)

    assert following.run(maxBatchesPerTrigger=1) == [2, 4, 5, 6, 10, 11, 12]
    seal(small_archive, 5)
    small_archive.remove(5, "expired")
    exported(spark, small_archive, lake, 6)
    with pytest.raises(PySparkException, match="3 messages of the batches 5 to 5 are gone from"):
        following.run()


def test_a_stream_is_told_that_a_lake_does_not_hold_the_first_batches(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    seal(small_archive, 1)
    small_archive.remove(1, "trimmed")
    exported(spark, small_archive, lake, 2)
    following = Following(spark, lake, tmp_path)

    with pytest.raises(PySparkException, match=r"Batches 1 to 1 are not in .*, which begins with batch 2"):
        following.run(fromBatch=1)
    assert following.run(fromBatch=1, failOnDataLoss="false") == [4, 5, 6]


def test_a_lake_in_an_object_store_is_read_and_followed(
    spark: SparkSession, small_archive: Archive, object_store: ObjectStore, remote_lake: Lake, tmp_path: Path
) -> None:
    options = {f"storage.{name}": value for name, value in object_store.options.items()}
    following = Following(spark, remote_lake, tmp_path)
    exported(spark, small_archive, remote_lake, 1, 2)

    assert numbers(reading(spark, lake=str(remote_lake.root), **options).where("queue = 'orders'")) == [1, 3, 5]
    assert following.run(**options) == [1, 2, 3, 4, 5, 6]
    tidied(spark, remote_lake)
    exported(spark, small_archive, remote_lake, 3)
    assert following.run(**options) == list(range(1, 10))


def test_a_stream_refuses_a_lake_that_ends_before_what_it_has_read(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    exported(spark, small_archive, lake, 1)
    older = shutil.copytree(str(lake.root), tmp_path / "older")
    exported(spark, small_archive, lake, 2)
    following = Following(spark, lake, tmp_path)
    assert following.run(fromBatch=2) == [4, 5, 6]
    assert following.run(fromBatch=9) == [4, 5, 6]

    following.lake = Lake(older)
    with pytest.raises(PySparkException, match="has read up to batch 2, but the last one is now 1"):
        following.run()
    assert following.run(failOnDataLoss="false") == [4, 5, 6]


def test_a_lake_is_read_at_a_path_that_looks_like_a_pattern(
    spark: SparkSession, small_archive: Archive, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "a[bc]{d,e}*?")
    exported(spark, small_archive, lake, 1)
    assert numbers(lake.read(spark)) == [1, 2, 3]
