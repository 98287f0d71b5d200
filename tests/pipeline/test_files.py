"""Tasks read the files of a lake in portions that fit into memory, each task about as much as the others."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from peeklock_pipeline.files import ROW_GROUP_BYTES, read, write
from peeklock_pipeline.lake import MANY_FILES, Lake
from peeklock_pipeline.ranges import MAX_FILE_RANGES, Conversion, file_ranges, rows_of_files
from peeklock_pipeline.refusals import LakeUnavailable
from peeklock_pipeline.storage import Storage
from peeklock_pipeline.table_specs import ARCHIVE, MISSED, TableSpec
from pyspark.sql import DataFrame, SparkSession

BODIES = TableSpec("bodies", pa.schema([pa.field("number", pa.int64()), pa.field("body", pa.binary())]))


def test_a_file_of_large_rows_is_read_by_row_group(tmp_path: Path) -> None:
    rows = pa.table([range(100), [bytes(1 << 20)] * 100], schema=BODIES.schema)
    [file] = write(rows, Storage.at(tmp_path), BODIES)
    batches = list(read(file, Storage.at(tmp_path), BODIES.schema))
    assert [number for batch in batches for number in batch["number"].to_pylist()] == list(range(100))
    assert max(batch.nbytes for batch in batches) <= ROW_GROUP_BYTES


def test_few_tasks_read_small_files_and_large_files_have_tasks_of_their_own() -> None:
    mebibyte = 1 << 20
    assert file_ranges([], cores=2) == []
    assert file_ranges([1], cores=2) == [(0, 0)]
    assert file_ranges([20 * mebibyte] * 4, cores=2) == [(0, 1), (2, 3)]
    assert file_ranges([20 * mebibyte] * 4, cores=4) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert file_ranges([200 * mebibyte, 1, 1, 300 * mebibyte], cores=2) == [(0, 0), (1, 2), (3, 3)]
    assert len(file_ranges([100_000] * 365, cores=2)) == 12


def test_the_number_of_tasks_that_read_files_is_bounded() -> None:
    ranges = file_ranges([124 << 20] * 40_000, cores=2)
    assert len(ranges) == MAX_FILE_RANGES
    assert [place for first, last in ranges for place in range(first, last + 1)] == list(range(40_000))


def test_a_file_is_read_in_the_columns_that_are_asked_for(tmp_path: Path) -> None:
    days = [pa.field("date", pa.date32()), *BODIES.schema]
    day = date(2026, 9, 21)
    spec = TableSpec("days", pa.schema(days), partitions=("date",))
    [file] = write(pa.table([[day] * 2, [1, 2], [b"a", None]], schema=spec.schema), Storage.at(tmp_path), spec)
    wanted = pa.schema([("added", pa.string()), ("body", pa.binary()), ("date", pa.date32()), ("number", pa.int32())])
    [batch] = read(file, Storage.at(tmp_path), wanted)
    assert (batch.schema, batch.to_pylist()) == (
        wanted,
        [
            {"added": None, "body": b"a", "date": day, "number": 1},
            {"added": None, "body": None, "date": day, "number": 2},
        ],
    )


def test_the_partition_of_a_file_counts_and_not_a_column_of_its_own(tmp_path: Path) -> None:
    [file] = write(pa.table([[1, 2], [b"a", b"b"]], schema=BODIES.schema), Storage.at(tmp_path), BODIES)
    [batch] = read(replace(file, partition={"number": "7"}), Storage.at(tmp_path), BODIES.schema)
    assert batch["number"].to_pylist() == [7, 7]


def test_columns_of_a_file_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    [file] = write(pa.table([[1, 2], [b"a" * 1000, b"b"]], schema=BODIES.schema), Storage.at(tmp_path), BODIES)
    bodies = pq.read_metadata(tmp_path / file.path).row_group(0).column(1)
    with (tmp_path / file.path).open("r+b") as stream:
        stream.seek(bodies.dictionary_page_offset)
        stream.write(bytes(bodies.total_compressed_size))
    [batch] = read(file, Storage.at(tmp_path), pa.schema([BODIES.schema.field("number")]))
    assert batch.to_pylist() == [{"number": 1}, {"number": 2}]
    with pytest.raises(LakeUnavailable, match=file.path):
        list(read(file, Storage.at(tmp_path), BODIES.schema))


def test_a_value_that_is_no_text_is_refused_with_the_name_of_its_file(tmp_path: Path) -> None:
    [file] = write(pa.table([[1], [b"\xff"]], schema=BODIES.schema), Storage.at(tmp_path), BODIES)
    with pytest.raises(LakeUnavailable, match=f"{file.path} cannot be read or written: Invalid UTF8"):
        list(read(file, Storage.at(tmp_path), pa.schema([("body", pa.string())])))


def test_each_of_several_files_of_a_task_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    [file] = write(pa.table([[1], [b"a"]], schema=BODIES.schema), Storage.at(tmp_path), BODIES)
    found = rows_of_files(spark, [file] * 65, Storage.at(tmp_path), BODIES, Conversion(lambda rows: rows, BODIES))
    assert (found.rdd.getNumPartitions(), found.count()) == (3, 65)


def test_spark_looks_at_many_files_in_few_tasks(spark: SparkSession, lake: Lake) -> None:
    rows = pa.table([pa.array([1]), pa.array([3])], schema=MISSED.schema)
    files = [file for _ in range(40) for file in write(rows, lake.directory(MISSED), MISSED)]
    context = spark.sparkContext
    context.setJobGroup("look at files", "")
    lake.read_files(spark, files, MISSED)
    context.setLocalProperty("spark.jobGroup.id", None)
    context._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = context.statusTracker().getJobIdsForGroup("look at files")
    assert 0 < sum(tasks_of(spark, job) for job in jobs) <= 32


def test_spark_itself_reads_few_files_only(spark: SparkSession, lake: Lake) -> None:
    rows = pa.table([pa.array([1]), pa.array([3])], schema=MISSED.schema)
    [file] = write(rows, lake.directory(MISSED), MISSED)
    narrowed = MISSED.with_columns("export_batch")
    few, many = [file] * 40, [file] * (MANY_FILES + 1)
    assert "FileScan" in plan_of(lake.read_files(spark, few, narrowed))
    assert "FileScan" not in plan_of(lake.read_files(spark, many, narrowed))


def test_spark_reads_what_a_query_needs_of_any_number_of_files(lake: Lake) -> None:
    assert not lake.is_read_by_arrow(range(MANY_FILES + 1), ARCHIVE)
    assert lake.is_read_by_arrow(range(MANY_FILES + 1), ARCHIVE.with_columns("queue"))


def test_a_file_with_two_columns_of_one_name_is_damaged(tmp_path: Path) -> None:
    [file] = write(pa.table([[1], [b"a"]], schema=BODIES.schema), Storage.at(tmp_path), BODIES)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["number", "number"])
    pq.write_table(twice, tmp_path / file.path)
    with pytest.raises(LakeUnavailable, match="two of its columns have one name"):
        list(read(file, Storage.at(tmp_path), BODIES.schema))


def test_a_null_in_a_column_that_has_none_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    required = TableSpec("required", pa.schema([pa.field("number", pa.int64(), nullable=False)]))
    [file] = write(pa.table([[1, None]], names=["number"]), Storage.at(tmp_path), BODIES)
    found = rows_of_files(spark, [file], Storage.at(tmp_path), required, Conversion(lambda rows: rows, required))
    assert found.where("number IS NULL").count() == 1


def plan_of(rows: DataFrame) -> str:
    """How Spark would compute these rows."""
    return rows._jdf.queryExecution().toString()


def tasks_of(spark: SparkSession, job: int) -> int:
    """The number of tasks of a Spark job."""
    tracker = spark.sparkContext.statusTracker()
    found = tracker.getJobInfo(job)
    stages = [tracker.getStageInfo(stage) for stage in found.stageIds] if found else []
    return sum(stage.numTasks for stage in stages if stage)


def test_a_first_commit_to_a_place_that_cannot_be_written_is_refused() -> None:
    """Jobs write a first file before most commits. A table without rows has none."""
    with pytest.raises(LakeUnavailable, match=r"^/proc/peeklock-lake/missed cannot be read or written: .*No such file"):
        Lake("/proc/peeklock-lake").replace(MISSED, [])
