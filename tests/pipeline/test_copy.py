"""A lake goes on in the partitions with which it was made; a copy of it has those of this version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import files_of
from peeklock_pipeline.jobs.audit import audit
from peeklock_pipeline.jobs.compact import CompactResult, compact
from peeklock_pipeline.jobs.copy import CopyResult, copy
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.retention import retention
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.replay_log import Portion, ReplayLog, ReplayState
from peeklock_pipeline.sending import SendResult
from peeklock_pipeline.table_specs import ARCHIVE
from peeklock_pipeline.tables import Change, commit
from pyspark.sql import SparkSession

from tests.pipeline.archive import DAY, NOON, Archive, archived

FIRST_DAY = date(2026, 9, 21)
BY_QUEUE_AND_DAY = replace(ARCHIVE, partitions=("queue", "date"))


class Killed(BaseException):
    """Ends a run as a kill does: nothing handles it."""


def old_lake(spark: SparkSession, archive: Archive, lake: Lake) -> Database:
    """A lake with a partition for each queue and day, as earlier versions made it: two exports, eight files."""
    database = Database.from_url(archive.url)
    assert commit(lake.directory(ARCHIVE), None, BY_QUEUE_AND_DAY, Change())
    for number in (1, 2):
        rows = [
            archived(number * 10 + n, queue=("orders", "billing")[n % 2], settled_at=NOON + n // 2 % 2 * DAY)
            for n in range(8)
        ]
        archive.seal(number, rows)
        export(spark, database, lake)
    assert len(files_of(lake.archive_table())) == 8
    return database


def contents(spark: SparkSession, lake: Lake) -> list[object]:
    return lake.read(spark).orderBy("sequence_number").collect()


def partitions(lake: Lake) -> list[str]:
    return lake.archive_table().metadata().partition_columns


def test_an_older_lake_is_kept_in_order_in_its_own_partitions(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = old_lake(spark, small_archive, lake)
    before = contents(spark, lake)
    assert compact(spark, lake) == CompactResult(files=4, files_before=8)
    assert contents(spark, lake) == before
    assert retention(spark, lake, FIRST_DAY + timedelta(days=1), ["orders"]).messages == 4
    assert [file.partition["queue"] for file in files_of(lake.archive_table())].count("orders") == 1
    assert partitions(lake) == ["queue", "date"]
    assert audit(spark, database, lake).findings == []


def test_a_copy_has_every_message_and_record_in_files_by_day(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database = old_lake(spark, small_archive, lake)
    retention(spark, lake, FIRST_DAY + timedelta(days=1), ["orders"])
    log = ReplayLog(lake, "again")
    log.plan(ReplayState("true", "orders", 2))
    log.end(Portion(1, 9, 3), SendResult(3, 0))
    target = Lake(tmp_path / "copy")
    assert copy(spark, lake, target) == CopyResult(messages=12, files=2, last_batch=2)
    assert contents(spark, target) == contents(spark, lake)
    assert partitions(target) == ["date"]
    assert (target.export_position(), target.first_batch()) == (lake.export_position(), lake.first_batch())
    assert audit(spark, database, target).findings == []
    copied = ReplayLog(target, "again")
    assert copied.state(spark) == log.state(spark)
    copied.skip(Portion(10, 11, 1))
    small_archive.seal(3, [archived(99)])
    assert export(spark, database, target).messages == 1
    assert copy(spark, lake, target) == CopyResult(messages=0, files=0, last_batch=3)
    assert audit(spark, database, target).findings == []


def test_a_copy_killed_anywhere_goes_on_where_it_ended(
    spark: SparkSession, small_archive: Archive, lake: Lake, s3_lake: Lake
) -> None:
    database = old_lake(spark, small_archive, lake)
    source = contents(spark, lake)

    def die_at(files: int) -> Callable[[int, int], None]:
        def progress(done: int, total: int) -> None:
            if done == files:
                raise Killed

        return progress

    for files in (0, 4, 8):
        with pytest.raises(Killed):
            copy(spark, lake, s3_lake, die_at(files), commit_tasks=1)
        for use in (s3_lake.archive_table, s3_lake.export_position, lambda: export(spark, database, s3_lake)):
            with pytest.raises(
                BadLake, match="is an unfinished copy of another lake: run `peeklock-pipeline copy` again"
            ):
                use()
        small_archive.seal(3 + files, [archived(90 + files)])
        export(spark, database, lake)  # exports to the source go on, and the copy has one version of it
    assert copy(spark, lake, s3_lake).last_batch == 2
    assert contents(spark, s3_lake) == source
    assert export(spark, database, s3_lake).messages == 3
    assert audit(spark, database, s3_lake).findings == []


def test_a_copy_into_another_lake_is_refused(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database = old_lake(spark, small_archive, lake)
    other = Lake(tmp_path / "other")
    export(spark, database, other)
    with pytest.raises(BadLake, match="has messages that are not from"):
        copy(spark, lake, other)
    with pytest.raises(BadLake, match="is not a lake yet"):
        copy(spark, Lake(tmp_path / "none"), Lake(tmp_path / "new"))
