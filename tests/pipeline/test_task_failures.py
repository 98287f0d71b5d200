"""A task that fails for good ends a command with one sentence, which names the cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from peeklock_pipeline.causes import MAX_CHARACTERS, cause_of
from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import files_of
from peeklock_pipeline.ranges import write_ranges
from peeklock_pipeline.refusals import TasksFailed
from peeklock_pipeline.table_specs import ARCHIVE, MISSED
from pyspark.sql import SparkSession

from tests.pipeline.archive import Archive, archived

RunRefused = Callable[..., str]

PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 12, in main
    work()
KeyError: 'first'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 14, in main
    raise ValueError(text)
ValueError: the second,
which has a second line
"""
UNREADABLE = (
    "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file a.parquet."
)
JAVA = f"""An error occurred while calling o465.collectToPython.
: {UNREADABLE}
	at org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:920)
Caused by: java.lang.RuntimeException: it is not a Parquet file
	at org.apache.parquet.hadoop.ParquetFileReader.readFooter(ParquetFileReader.java:557)
Caused by: java.io.EOFException
	... 12 more
"""
LOST = """An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted: Task 0 failed 4 times (executor 1) Reason: Command exited with code 137
Driver stacktrace:
	at org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)
"""
SQL = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 1, position 1) ==\nid/0\n^^^^\n"


@pytest.mark.parametrize(
    ("report", "cause"),
    [
        (PYTHON, "ValueError: the second,"),
        (JAVA, f"{UNREADABLE}, caused by java.lang.RuntimeException: it is not a Parquet file"),
        ("Traceback (most recent call last):\n", ""),
        (LOST, "org.apache.spark.SparkException: Job aborted: Task 0 failed 4 times (executor 1) Reason: Command exited with code 137"),
        (SQL, "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"),
        ("Something else\nin two lines", "Something else"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_cause_of_a_failure_is_its_last_exception_in_one_line(report: str, cause: str) -> None:
    assert cause_of(report) == cause


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("cannot reach postgresql://reader:a@b@host/queues now", "cannot reach postgresql://...@host/queues now"),
        ("no answer from s3://bucket/lake", "no answer from s3://bucket/lake"),
        ("host=db password=hidden dbname=queues", "host=db password=... dbname=queues"),
        ("GET /lake?X-Amz-Credential=hidden&X-Amz-Signature=hidden", "GET /lake?X-Amz-Credential=...&X-Amz-Signature=..."),
        ("{'aws_secret_access_key': 'hidden', 'region': 'eu'}", "{'aws_secret_access_key': ..., 'region': 'eu'}"),
        ("KeyError: 'orders'", "KeyError: 'orders'"),
    ],
)  # fmt: skip
def test_a_cause_has_no_credentials(said: str, shown: str) -> None:
    assert cause_of(f"Exception: {said}") == f"Exception: {shown}"


def test_a_cause_is_not_longer_than_a_few_lines() -> None:
    cause = cause_of("x" * 10_000)
    assert (len(cause), cause[-4:]) == (MAX_CHARACTERS, "x...")


def test_tasks_that_fail_name_their_own_exception(spark: SparkSession, lake: Lake) -> None:
    def broken(first: int, last: int) -> Iterator[pa.Table]:
        raise ValueError(f"numbers {first} to {last} of mysql://user:hidden@host/queues")

    with pytest.raises(TasksFailed) as refusal:
        write_ranges(spark, [(1, 2)], broken, lake.directory(MISSED), MISSED)
    said = "ValueError: numbers 1 to 2 of mysql://...@host/queues"
    assert str(refusal.value) == f"Spark's tasks failed, also when repeated: {said}"


@pytest.mark.parametrize("command", ["report", "what-if", "replay"])
def test_a_query_of_a_damaged_file_ends_with_a_sentence(
    spark: SparkSession, run_refused: RunRefused, small_archive: Archive, lake: Lake, tmp_path: Path, command: str
) -> None:
    small_archive.seal(1, [archived(number) for number in range(1, 6)])
    export(spark, Database.from_url(small_archive.url), lake)
    (file,) = files_of(lake.archive_table())
    damage_rows(Path(f"{lake.directory(ARCHIVE)}/{file.path}"))
    words = {
        "report": ("--out", tmp_path / "report.html"),
        "what-if": ("--policy", "limit=2"),
        "replay": ("--plan", "--to", "orders", "--where", "priority <= 9"),
    }
    said = run_refused(command, "--lake", lake.root, *words[command])
    assert said.startswith("Spark's tasks failed, also when repeated: ")
    assert file.path in said


def damage_rows(path: Path) -> None:
    """Overwrite the columns of a file, and leave its beginning and its end as they are."""
    whole = path.read_bytes()
    end = int.from_bytes(whole[-8:-4], "little") + 8
    path.write_bytes(whole[:4] + bytes(len(whole) - 4 - end) + whole[-end:])
