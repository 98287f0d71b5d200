"""The driver of an export is killed before, after or between its commits: the next export completes it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.audit import audit
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.lake import Lake
from pyarrow.fs import FileSelector
from pyspark.sql import SparkSession

from tests.pipeline.archive import Archive, archived
from tests.pipeline.crashing_export import CRASH_EXIT_CODE
from tests.servers import end_tree

TIMEOUT_SECONDS = 600.0

KILLS = pytest.mark.parametrize(
    ("moment", "batches_left"),
    [
        pytest.param("before_the_commit", 3, marks=[pytest.mark.faults, pytest.mark.nightly]),
        pytest.param("after_the_commit", 2, marks=pytest.mark.faults),
        pytest.param("in_the_second_commit", 2, marks=[pytest.mark.faults, pytest.mark.nightly]),
    ],
)


@KILLS
@pytest.mark.nightly
def test_the_next_export_completes_a_crashed_one(
    spark: SparkSession, small_archive: Archive, lake: Lake, moment: str, batches_left: int
) -> None:
    expect_a_whole_lake_after_a_crash(spark, small_archive, lake, moment, batches_left)


@KILLS
def test_the_next_export_completes_a_crashed_one_in_an_object_store(
    spark: SparkSession, small_archive: Archive, s3_lake: Lake, moment: str, batches_left: int
) -> None:
    expect_a_whole_lake_after_a_crash(spark, small_archive, s3_lake, moment, batches_left)


@pytest.mark.nightly
@KILLS
def test_the_next_export_completes_a_crashed_one_of_each_database(
    spark: SparkSession, archive: Archive, s3_lake: Lake, moment: str, batches_left: int
) -> None:
    expect_a_whole_lake_after_a_crash(spark, archive, s3_lake, moment, batches_left)


def expect_a_whole_lake_after_a_crash(
    spark: SparkSession, archive: Archive, lake: Lake, moment: str, batches_left: int
) -> None:
    """Run an export that crashes at this moment, and expect the next one to complete the lake."""
    for number in range(1, 4):
        archive.seal(number, [archived(number * 100 + n) for n in range(40)])
    run_crashing_export(moment, archive.url, lake)
    assert lake.root.filesystem().get_file_info(FileSelector("archive", recursive=True))
    database = Database.from_url(archive.url)
    assert export(spark, database, lake).batches == batches_left
    found = sorted(row[0] for row in lake.read(spark).select("sequence_number").collect())
    assert found == sorted(archive.numbers())
    assert audit(spark, database, lake).findings == []


def has_only_jvm_warning(stderr: str) -> bool:
    """Return whether the text has only the JVM's own warning, which cannot be switched off."""
    return {line for line in stderr.splitlines() if line.strip()} <= {
        "WARNING: Using incubator modules: jdk.incubator.vector"
    }


def run_crashing_export(moment: str, database_url: str, lake: Lake) -> None:
    """Run an export in a process until it crashes."""
    command = [sys.executable, "-m", "tests.pipeline.crashing_export", moment, database_url, str(lake.root)]
    command += [f"{name}={value}" for name, value in lake.root.options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    try:
        stderr = process.communicate(timeout=TIMEOUT_SECONDS)[1].decode()
        assert process.returncode == CRASH_EXIT_CODE, stderr
        assert has_only_jvm_warning(stderr)
    finally:
        end_tree(process.pid, signal.SIGKILL)
