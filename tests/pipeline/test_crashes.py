"""The driver of an export dies hard, before its commit, after it, or half-way: the next export makes it whole."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.audit import audit
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.lake import Lake
from pyspark.sql import SparkSession

from tests.pipeline.archive import Archive, archived
from tests.pipeline.crashing_export import CRASH_EXIT_CODE
from tests.servers import end_tree

TIMEOUT_SECONDS = 600.0


@pytest.mark.parametrize(
    ("moment", "batches_left"),
    [
        pytest.param("before_the_commit", 3, marks=pytest.mark.faults("all")),
        pytest.param("after_the_commit", 2, marks=pytest.mark.faults("short")),
        pytest.param("in_the_second_commit", 2, marks=pytest.mark.faults("all")),
    ],
)
def test_an_export_that_died_is_made_whole_by_the_next(
    spark: SparkSession, small_archive: Archive, lake: Lake, moment: str, batches_left: int
) -> None:
    for number in range(1, 4):
        small_archive.seal(number, [archived(number * 100 + n) for n in range(40)])
    run_crashing_export(moment, small_archive.url, lake)
    written = list(lake.root.rglob("*.parquet"))
    assert written
    database = Database.from_url(small_archive.url)
    assert export(spark, database, lake).batches == batches_left
    found = sorted(row[0] for row in lake.read(spark).select("sequence_number").collect())
    assert found == sorted(small_archive.numbers())
    assert audit(spark, database, lake).findings == []


def has_only_jvm_warning(said: str) -> bool:
    """Whether nobody but the Java machine itself, which cannot be asked not to, has said something."""
    return {line for line in said.splitlines() if line.strip()} <= {
        "WARNING: Using incubator modules: jdk.incubator.vector"
    }


def run_crashing_export(moment: str, database_url: str, lake: Lake) -> None:
    """Let a process export until it dies."""
    command = [sys.executable, "-m", "tests.pipeline.crashing_export", moment, database_url, str(lake.root)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    try:
        said = process.communicate(timeout=TIMEOUT_SECONDS)[1].decode()
        assert process.returncode == CRASH_EXIT_CODE, said
        assert has_only_jvm_warning(said)
    finally:
        end_tree(process.pid, signal.SIGKILL)
