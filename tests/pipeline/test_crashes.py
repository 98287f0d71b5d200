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
from tests.pipeline.dying import DEAD
from tests.servers import end_tree

PATIENCE = 600.0


@pytest.mark.parametrize(
    ("moment", "batches_left"),
    [
        pytest.param("before_the_commit", 3, marks=pytest.mark.faults("all")),
        pytest.param("after_the_commit", 2, marks=pytest.mark.faults("short")),
        pytest.param("in_the_second_commit", 2, marks=pytest.mark.faults("all")),
    ],
)
def test_an_export_that_died_is_made_whole_by_the_next(
    spark: SparkSession, small: Archive, lake: Lake, moment: str, batches_left: int
) -> None:
    for number in range(1, 4):
        small.seal(number, [archived(number * 100 + n) for n in range(40)])
    die(moment, small.url, lake)
    written = list(lake.root.rglob("*.parquet"))
    assert written
    database = Database.at(small.url)
    assert export(spark, database, lake).batches == batches_left
    found = sorted(row[0] for row in lake.read(spark).select("sequence_number").collect())
    assert found == sorted(small.numbers())
    assert audit(spark, database, lake).findings == []


def only_the_machine(said: str) -> bool:
    """Whether nobody but the Java machine itself, which cannot be asked not to, has said something."""
    return {line for line in said.splitlines() if line.strip()} <= {
        "WARNING: Using incubator modules: jdk.incubator.vector"
    }


def die(moment: str, database_url: str, lake: Lake) -> None:
    """Let a process export until it dies."""
    command = [sys.executable, "-m", "tests.pipeline.dying", moment, database_url, str(lake.root)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    try:
        said = process.communicate(timeout=PATIENCE)[1].decode()
        assert process.returncode == DEAD, said
        assert only_the_machine(said)
    finally:
        end_tree(process.pid, signal.SIGKILL)
