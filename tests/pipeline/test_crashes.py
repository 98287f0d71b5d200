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


@pytest.fixture(params=["directory", "object store"])
def any_lake(request: pytest.FixtureRequest) -> Lake:
    """An empty lake."""
    names = {"directory": "lake", "object store": "s3_lake"}
    return request.getfixturevalue(names[request.param])


@pytest.mark.parametrize(
    ("moment", "batches_left"),
    [
        pytest.param("before_the_commit", 3, marks=[pytest.mark.faults, pytest.mark.nightly]),
        pytest.param("after_the_commit", 2, marks=pytest.mark.faults),
        pytest.param("in_the_second_commit", 2, marks=[pytest.mark.faults, pytest.mark.nightly]),
    ],
)
def test_the_next_export_completes_a_crashed_one(
    spark: SparkSession, small_archive: Archive, any_lake: Lake, moment: str, batches_left: int
) -> None:
    for number in range(1, 4):
        small_archive.seal(number, [archived(number * 100 + n) for n in range(40)])
    run_crashing_export(moment, small_archive.url, any_lake)
    assert any_lake.root.filesystem().get_file_info(FileSelector("archive", recursive=True))
    database = Database.from_url(small_archive.url)
    assert export(spark, database, any_lake).batches == batches_left
    found = sorted(row[0] for row in any_lake.read(spark).select("sequence_number").collect())
    assert found == sorted(small_archive.numbers())
    assert audit(spark, database, any_lake).findings == []


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
