"""A report reads each batch once: its parts in the lake add up to what all messages together give."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import Transaction
from peeklock_pipeline.files import write
from peeklock_pipeline.jobs.compact import compact
from peeklock_pipeline.jobs.report_parts import MAX_FILES, report_sources
from peeklock_pipeline.jobs.retention import retention
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import files_of
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.table_specs import ARCHIVE, MESSAGES, TableSpec
from peeklock_pipeline.tables import Change
from peeklock_pipeline.transforms import report
from peeklock_pipeline.transforms.report import ENDED_MESSAGES
from peeklock_pipeline.transforms.report_parts import (
    PARTS,
    in_groups,
    joined,
    merged,
    parts,
    quantiles,
    with_slowest_groups,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tests.pipeline.counting_lake import CountingLake
from tests.pipeline.crashing_report import CRASH_EXIT_CODE
from tests.pipeline.histories import NOON, ended, fill, history, later
from tests.servers import end_tree

HOUR = 3600
DAY = 24 * HOUR
TIMEOUT_SECONDS = 600.0


def batch(number: int, messages: int = 10, day: int = 0, **other: Any) -> list[dict[str, Any]]:
    """A batch of messages that take different times, in two queues, some of them in groups and some dead."""
    rng = random.Random(number)
    return [
        ended(
            number * 100 + n, day * DAY + n * 600, day * DAY + n * 600 + 1, day * DAY + n * 600 + 2,
            day * DAY + n * 600 + rng.randrange(3, 90), export_batch=number, queue=("orders", "mail")[n % 2],
            group_id=f"g{n % 3}", delivery_count=1 + n % 2, dead_letter_reason="bad" if n % 5 == 0 else None, **other,
        )
        for n in range(messages)
    ]  # fmt: skip


def answers(spark: SparkSession, lake: Lake, queue: str | None = None, *, from_scratch: bool = False) -> dict[str, Any]:
    """The tables of a report, as text by their names."""
    with report_sources(spark, lake, queue, from_scratch) as sources:
        tables = (report.hours, report.queues, report.reasons, report.slowest_groups)
        return {table.__name__: sorted(str(row) for row in table(sources.parts).collect()) for table in tables}


def sent(spark: SparkSession, lake: Lake, queue: str | None = None, *, from_scratch: bool = False) -> Mapping[str, int]:
    """The number of messages sent to each queue, by a report."""
    with report_sources(spark, lake, queue, from_scratch) as sources:
        return {row.queue: row.sent for row in report.queues(sources.parts).collect()}


def empty_the_files_of(lake: Lake) -> None:
    """Leave the lake's archive without a message, behind its log."""
    for path in directory_of(lake, ARCHIVE).rglob("*.parquet"):
        pq.write_table(pq.read_table(path, partitioning=None).slice(0, 0), path)


def directory_of(lake: Lake, spec: TableSpec) -> Path:
    """The directory of a table."""
    return Path(str(lake.directory(spec)))


def part_files(lake: Lake) -> int:
    """How many files the parts have."""
    table = lake.table(PARTS)
    assert table is not None
    return len(files_of(table))


def test_a_report_reads_new_batches_only_and_all_from_scratch(lake: Lake, spark: SparkSession) -> None:
    fill(lake, batch(1))
    assert sent(spark, lake) == {"orders": 5, "mail": 5}
    empty_the_files_of(lake)
    fill(lake, batch(2, 4))
    assert sent(spark, lake) == {"orders": 7, "mail": 7}
    with pytest.raises(BadLake, match="was replaced"):
        sent(spark, lake, from_scratch=True)


def test_parts_of_several_runs_give_what_all_messages_give(lake: Lake, spark: SparkSession) -> None:
    for number in range(1, 4):
        fill(lake, batch(number, day=number % 2))
        found = answers(spark, lake)
    compact(spark, lake)
    before = part_files(lake)
    assert answers(spark, lake) == found
    assert part_files(lake) == before
    assert answers(spark, lake, from_scratch=True) == found


def test_messages_that_were_reported_are_left_out_of_a_file_with_new_ones(lake: Lake, spark: SparkSession) -> None:
    fill(lake, batch(1))
    sent(spark, lake)
    fill(lake, batch(2))
    assert compact(spark, lake).files == 1
    for queue in ("mail", None):
        assert sent(spark, lake, queue)["mail"] == 10


def test_a_report_reads_the_columns_that_it_uses(lake: Lake, spark: SparkSession) -> None:
    fill(lake, batch(1))
    counting = CountingLake(lake)
    sent(spark, counting)
    assert {columns for _, columns in counting.reads} == {len(ENDED_MESSAGES.schema)}
    assert {"body", "headers", "properties", "history"}.isdisjoint(ENDED_MESSAGES.schema.names)


def test_a_report_about_one_queue_reads_an_object_store_once(remote_lake: Lake, spark: SparkSession) -> None:
    fill(remote_lake, batch(1))
    before = cached_results(spark)
    with report_sources(spark, remote_lake, "mail") as sources:
        assert [row.sent for row in report.queues(sources.parts).collect()] == [5]
        assert cached_results(spark) == before + 2  # the messages, and their parts
    assert cached_results(spark) == before


def cached_results(spark: SparkSession) -> int:
    """How many results Spark caches."""
    return spark.sparkContext._jsc.getPersistentRDDs().size()


def test_a_report_about_one_queue_counts_new_batches_and_adds_no_part(lake: Lake, spark: SparkSession) -> None:
    fill(lake, batch(1))
    sent(spark, lake)
    before = part_files(lake)
    fill(lake, batch(2))
    assert sent(spark, lake, "mail") == {"mail": 10}
    assert part_files(lake) == before


class InterruptedLake(Lake):
    """A lake in which another report commits before this one."""

    def commit_at_version(self, spec: TableSpec, change: Change, after: int, *transactions: Transaction) -> bool:
        """Commit for another report first."""
        assert Lake(self.root).commit_at_version(spec, change, after, *transactions)
        return super().commit_at_version(spec, change, after, *transactions)


def test_of_two_reports_at_once_one_is_refused_and_nothing_counts_twice(lake: Lake, spark: SparkSession) -> None:
    fill(lake, batch(1))
    with pytest.raises(BadLake, match="Another report of this lake has committed"):
        sent(spark, InterruptedLake(lake.root))
    assert sent(spark, lake) == {"orders": 5, "mail": 5}


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("before_the_commit", marks=[pytest.mark.faults, pytest.mark.nightly]),
        pytest.param("after_the_commit", marks=pytest.mark.faults),
    ],
)
def test_after_a_crash_the_next_report_counts_each_message_once(lake: Lake, spark: SparkSession, moment: str) -> None:
    fill(lake, batch(1))
    sent(spark, lake)
    fill(lake, batch(2))
    command = [sys.executable, "-m", "tests.pipeline.crashing_report", moment, str(lake.root)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    try:
        stderr = process.communicate(timeout=TIMEOUT_SECONDS)[1].decode()
        assert process.returncode == CRASH_EXIT_CODE, stderr
    finally:
        end_tree(process.pid, signal.SIGKILL)
    assert len(list(directory_of(lake, PARTS).glob("*.parquet"))) > 1
    assert sent(spark, lake) == {"orders": 10, "mail": 10}


def test_many_files_are_merged(lake: Lake, spark: SparkSession) -> None:
    fill(lake, batch(1))
    found = answers(spark, lake)
    directory = lake.directory(PARTS)
    lake.append(PARTS, [file for _ in range(MAX_FILES) for file in write(PARTS.schema.empty_table(), directory, PARTS)])
    assert part_files(lake) > MAX_FILES
    assert answers(spark, lake) == found
    assert part_files(lake) < MAX_FILES


def test_what_retention_removes_leaves_the_report_but_later_batches_of_that_day_stay(
    lake: Lake, spark: SparkSession
) -> None:
    fill(lake, [*batch(1), *batch(2, 4, day=1)])
    sent(spark, lake)
    assert retention(spark, lake, NOON.date() + timedelta(days=1), ["mail"]).messages == 5
    assert sent(spark, lake, "mail") == {"mail": 2}
    fill(lake, batch(3, 2))
    assert sent(spark, lake) == {"orders": 8, "mail": 3}
    removed_day = lake.read(spark, PARTS).where(fn.col("date") == fn.lit(NOON.date())).where("queue = 'mail'")
    assert {row.last_batch for row in removed_day.collect()} == {3}  # the others are in no file of the table
    with report_sources(spark, lake, None) as sources:
        assert sources.last_removed_day == NOON.date()
    assert answers(spark, lake) == answers(spark, lake, from_scratch=True)
    retention(spark, lake, NOON.date() + timedelta(days=2), ["mail"])
    with report_sources(spark, lake, None) as sources:
        assert sources.last_removed_day == NOON.date() + timedelta(days=1)


def test_a_removal_is_refused_if_an_export_has_added_messages_of_its_days_meanwhile(
    lake: Lake, spark: SparkSession
) -> None:
    fill(lake, batch(1))

    class Busy(Lake):
        """A lake with an export and a report between the count of a retention and its commit."""

        def remove(self, change: Change, removal: str, *rest: Any) -> None:
            fill(lake, [*batch(2), *batch(3, day=9)])
            sent(spark, lake)
            super().remove(change, removal, *rest)

    kept_from = NOON.date() + timedelta(days=1)
    with pytest.raises(BadLake, match="was changed by another job meanwhile; run this one again"):
        retention(spark, Busy(lake.root), kept_from)
    assert sent(spark, lake) == {"orders": 15, "mail": 15}
    assert retention(spark, lake, kept_from).messages == 20
    assert sent(spark, lake) == {"orders": 5, "mail": 5}
    assert answers(spark, lake) == answers(spark, lake, from_scratch=True)


def test_parts_of_another_archive_or_with_a_lost_file_are_computed_again(lake: Lake, spark: SparkSession) -> None:
    fill(lake, batch(1))
    sent(spark, lake)
    next(iter(directory_of(lake, PARTS).glob("*.parquet"))).unlink()
    assert sent(spark, lake) == {"orders": 5, "mail": 5}
    shutil.rmtree(directory_of(lake, ARCHIVE))
    fill(lake, batch(1, 2))
    assert sent(spark, lake) == {"orders": 1, "mail": 1}


def snapshot_of(lake: Lake, numbers: list[int], taken_at: datetime) -> None:
    """Replace the lake's snapshot with these dead-lettered messages."""
    names = MESSAGES.schema.names
    rows = [
        {name: value for name, value in ended(number, 0, 1, 2, 3).items() if name in names}
        | {"state": "dead_lettered", "dead_lettered_at": later(5), "dead_letter_reason": "bad", "taken_at": taken_at}
        for number in numbers
    ]
    table = pa.Table.from_pylist(rows, schema=MESSAGES.schema)
    lake.replace(MESSAGES, list(write(table, lake.directory(MESSAGES), MESSAGES)))


def test_messages_of_a_snapshot_count_afresh_and_once(lake: Lake, spark: SparkSession) -> None:
    fill(lake, [ended(1, 0, 1, 2, 3)])
    snapshot_of(lake, [2, 3], later(60))
    assert sent(spark, lake) == {"orders": 3}
    # Message 2 was purged and exported since; then another snapshot is taken.
    fill(lake, [ended(2, 0, 1, 2, 90, export_batch=2, outcome="purged", dead_letter_reason="bad")])
    assert sent(spark, lake) == {"orders": 3}
    snapshot_of(lake, [3, 4], later(120))
    assert sent(spark, lake) == {"orders": 4}
    with report_sources(spark, lake, None) as sources:
        (row,) = report.reasons(sources.parts).collect()
    assert (row.reason, row.messages, row.waiting) == ("bad", 3, 2)
    fill(lake, [ended(5, 0, 1, 2, 90, export_batch=3, queue="mail")])
    assert sent(spark, lake, "orders") == {"orders": 4}
    with report_sources(spark, lake, "orders") as sources:
        histories = sources.histories_since(NOON.date())
        assert sorted(row.sequence_number for row in histories.collect()) == [1, 2, 3, 4]


# ---- names and accuracy ----------------------------------------------------------------------------------------------


def named(some: DataFrame, kind: str, count: str) -> dict[str | None, int]:
    """The messages of each name of a kind."""
    found = some.where(fn.col("kind") == kind).groupBy("name").agg(fn.sum(count).alias("messages"))
    return {row.name: row.messages for row in found.collect()}


def test_the_slowest_groups_and_most_frequent_reasons_are_kept_and_others_summed(
    spark: SparkSession,
) -> None:
    dead = [
        ended(n, 0, 1, 1, 2, dead_letter_reason=f"r{min(n, 3)}", outcome="purged", group_id="never completed")
        for n in range(6)
    ]
    done = [ended(10 + n, 0, 1, 1, 2 + n, group_id=f"g{n}") for n in range(6)]
    slow = ended(20, 0, 1, 1, 500, group_id="g0")
    known = report.message_histories(history(spark, [*dead, *done, slow]))
    found = joined(parts(known), 2)
    assert named(found, "reason", "dead_lettered") == {"r3": 3, "r0": 1, None: 2}
    assert named(found, "group", "completed") == {"g0": 2, "g5": 1, None: 4}
    again = joined(found, 2)
    assert [named(again, kind, "completed") for kind in ("group", "queue")] == [
        named(found, kind, "completed") for kind in ("group", "queue")
    ]
    assert {row.group_id for row in with_slowest_groups(in_groups(known), 1).collect()} == {"g0", None}


def test_quantiles_of_merged_parts_are_as_exact_as_the_guide_says(spark: SparkSession, compiled: None) -> None:
    """The rank of a quantile is wrong by at most 0.35 % of the values with a probability of 99 %: by twice as much never."""
    values, hours = 40_000, 40
    times = "pow(2, randn(7) * 3)"
    some = spark.range(values).selectExpr(f"id % {hours} AS hour", f"CAST({times} * 1000000 AS BIGINT) AS end_to_end")
    some = some.cache()
    sketched = some.groupBy("hour").agg(fn.kll_sketch_agg_bigint("end_to_end", 800).alias("end_to_end"))
    joined = sketched.agg(fn.kll_merge_agg_bigint("end_to_end", 800).alias("end_to_end"))
    (found,) = joined.select(quantiles("end_to_end")).first() or ((),)
    exact = sorted(row.end_to_end / 1e6 for row in some.select("end_to_end").collect())
    for value, rank in zip(found, (0.5, 0.95, 0.99), strict=True):
        wrong = abs(sum(other <= value for other in exact) / values - rank)
        assert wrong <= 2 * 0.0035, (rank, wrong)


def test_a_sketch_without_a_value_has_no_quantile(spark: SparkSession, compiled: None) -> None:
    cancelled = ended(1, 0, None, None, 5, outcome="cancelled", delivery_count=0)
    some = parts(report.message_histories(history(spark, [cancelled])))
    (row,) = merged(some.where("kind = 'queue'")).select(quantiles("waiting").alias("found")).collect()
    assert row.found is None


def test_a_part_names_the_day_and_the_last_batch_of_its_messages(spark: SparkSession) -> None:
    rows = [ended(1, 0, 1, 1, 2), ended(2, 0, 1, 1, 2, export_batch=7), ended(3, 0, 1, 1, DAY, export_batch=3)]
    some = parts(report.message_histories(history(spark, rows))).where("kind = 'queue' AND sent > 0")
    assert {(row.date, row.last_batch, row.sent) for row in some.collect()} == {
        (date(2026, 3, 5), 7, 2),
        (date(2026, 3, 6), 3, 1),
    }
