"""A driver is killed before or after a commit: the next run completes an export, a retention, and a stream into a table."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.audit import AuditOptions, audit
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.retention import retention
from peeklock_pipeline.lake import Lake
from pyarrow.fs import FileSelector
from pyspark.sql import SparkSession

from tests.pipeline.archive import DAY, NOON, Archive, archived
from tests.pipeline.crashing_export import CRASH_EXIT_CODE
from tests.pipeline.crashing_merge import follow
from tests.pipeline.crashing_retention import BEFORE, QUEUES
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
    spark: SparkSession, small_archive: Archive, remote_lake: Lake, moment: str, batches_left: int
) -> None:
    expect_a_whole_lake_after_a_crash(spark, small_archive, remote_lake, moment, batches_left)


@pytest.mark.nightly
@KILLS
def test_the_next_export_completes_a_crashed_one_of_each_database(
    spark: SparkSession, archive: Archive, remote_lake: Lake, moment: str, batches_left: int
) -> None:
    expect_a_whole_lake_after_a_crash(spark, archive, remote_lake, moment, batches_left)


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
    assert has_only_jvm_warning(run_crashing("export", lake, moment, database_url, str(lake.root)))


def run_crashing(name: str, lake: Lake, *words: str) -> str:
    """Run a program with the options of the lake in a process until it crashes; return its standard error."""
    command = [sys.executable, "-m", f"tests.pipeline.crashing_{name}", *words]
    command += [f"{name}={value}" for name, value in lake.root.options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    try:
        stderr = process.communicate(timeout=TIMEOUT_SECONDS)[1].decode()
        assert process.returncode == CRASH_EXIT_CODE, stderr
        return stderr
    finally:
        end_tree(process.pid, signal.SIGKILL)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize(("moment", "left"), [("before_the_commit", 3), ("after_the_commit", 0)])
def test_the_next_retention_completes_a_crashed_one_in_an_object_store(
    spark: SparkSession, small_archive: Archive, remote_lake: Lake, moment: str, left: int
) -> None:
    rows = [archived(number, queue=("billing", "orders")[number % 2]) for number in range(1, 7)]
    small_archive.seal(1, [*rows, archived(7, settled_at=NOON + DAY)])
    database = Database.from_url(small_archive.url)
    export(spark, database, remote_lake)
    assert audit(spark, database, remote_lake).findings == []

    assert has_only_jvm_warning(run_crashing("retention", remote_lake, moment, str(remote_lake.root)))

    assert audit(spark, database, remote_lake).findings == []
    assert retention(spark, remote_lake, BEFORE, QUEUES).messages == left
    remote_lake.archive_table().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert sorted(row[0] for row in remote_lake.read(spark).select("sequence_number").collect()) == [2, 4, 6, 7]
    assert audit(spark, database, remote_lake, options=AuditOptions(from_scratch=True)).findings == []


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.parametrize(("moment", "counted"), [("before_the_commit", 4), ("after_the_commit", 8)])
def test_a_stream_into_an_object_store_killed_amid_a_micro_batch_counts_each_once(
    spark: SparkSession, small_archive: Archive, remote_lake: Lake, tmp_path: Path, moment: str, counted: int
) -> None:
    for batch in range(1, 4):
        rows = [archived(batch * 10 + number, queue=("billing", "orders")[number % 2]) for number in range(4)]
        small_archive.seal(batch, rows)
        export(spark, Database.from_url(small_archive.url), remote_lake)
    places = (str(remote_lake.root), f"{remote_lake.root}-counts", str(tmp_path / "checkpoint"))
    options = dict(remote_lake.root.options)

    def counts() -> dict[str, int]:
        table = DeltaTable(places[1], storage_options=options).to_pyarrow_table()
        return {row["name"]: row["messages"] for row in table.to_pylist()}

    run_crashing("merge", remote_lake, moment, *places)

    assert sum(counts().values()) == counted
    follow(spark, "never", *places, options)
    assert counts() == {"billing": 6, "orders": 6}
