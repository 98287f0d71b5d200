"""A lake goes on in the partitions with which it was made; a copy of it has those of this version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Transaction
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import write
from peeklock_pipeline.first_batch import FIRST_BATCH_KEY, LAST_BATCH_KEY, FirstBatch
from peeklock_pipeline.jobs.audit import audit
from peeklock_pipeline.jobs.compact import CompactResult, compact
from peeklock_pipeline.jobs.copy import CopyResult, copy
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.retention import retention
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import files_of
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.replay_log import Portion, ReplayLog, ReplayState
from peeklock_pipeline.sending import SendResult
from peeklock_pipeline.table_specs import ARCHIVE, OPENING, REMOVED, TableSpec
from peeklock_pipeline.tables import SEALED_AT_KEY, Change, commit
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


def test_a_lake_whose_files_lack_later_columns_is_compacted_and_copied(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database, directory = Database.from_url(small_archive.url), lake.directory(ARCHIVE)
    fields = [field for field in ARCHIVE.schema if field.name not in ("content_digest", "history", "row_checksum")]
    first = replace(BY_QUEUE_AND_DAY, schema=pa.schema(fields))  # of format 1
    small_archive.seal_all_with_events({1: [archived(1)], 2: [archived(2)]})
    rows = [database.read(number, number).select(first.schema.names) for number in (1, 2)]
    files = [file for table in rows for file in write(table, directory, first)]
    ended = (Transaction(LAST_BATCH_KEY, 2), Transaction(SEALED_AT_KEY, NOON + 2))
    assert commit(directory, None, first, Change(files), ended)
    before = contents(spark, lake)
    assert compact(spark, lake) == CompactResult(files=1, files_before=2)
    assert contents(spark, lake) == before
    assert copy(spark, lake, Lake(tmp_path / "copy")).messages == 2
    assert contents(spark, Lake(tmp_path / "copy")) == before


def test_a_copy_killed_anywhere_goes_on_where_it_ended(
    spark: SparkSession, small_archive: Archive, lake: Lake, remote_lake: Lake
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
            copy(spark, lake, remote_lake, die_at(files), commit_tasks=1)
        for use in (
            remote_lake.archive_table,
            remote_lake.export_position,
            lambda: export(spark, database, remote_lake),
        ):
            with pytest.raises(
                BadLake, match="is an unfinished copy of another lake: run `peeklock-pipeline copy` again"
            ):
                use()
        small_archive.seal(3 + files, [archived(90 + files)])
        export(spark, database, lake)  # exports to the source go on, and the copy has one version of it
    assert copy(spark, lake, remote_lake).last_batch == 2
    assert contents(spark, remote_lake) == source
    assert export(spark, database, remote_lake).messages == 3
    assert audit(spark, database, remote_lake).findings == []


def test_a_copy_into_another_lake_is_refused(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database = old_lake(spark, small_archive, lake)
    other = Lake(tmp_path / "other")
    export(spark, database, other)
    begun = Lake(tmp_path / "begun")
    begun.record_opening([])  # an export crashed before its first commit
    for target in (other, begun):
        with pytest.raises(BadLake, match="has messages or records that are not from"):
            copy(spark, lake, Lake(target.root))
    with pytest.raises(BadLake, match="is not a lake yet"):
        copy(spark, Lake(tmp_path / "none"), Lake(tmp_path / "new"))


def test_of_two_copies_at_once_one_goes_on(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database = old_lake(spark, small_archive, lake)
    place = tmp_path / "copy"

    def overtaken_at(files: int) -> Callable[[int, int], None]:
        def progress(done: int, total: int) -> None:
            if done == files:
                copy(spark, lake, Lake(place))

        return progress

    with pytest.raises(BadLake, match=r"Another copy to .* is running: wait for its end"):
        copy(spark, lake, Lake(place), overtaken_at(0))
    assert contents(spark, Lake(place)) == contents(spark, lake)
    assert copy(spark, lake, Lake(place)).messages == 0
    assert audit(spark, database, Lake(place)).findings == []


def test_a_copy_that_was_overtaken_leaves_later_exports_and_replays_as_they_are(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database = old_lake(spark, small_archive, lake)
    ReplayLog(lake, "again").plan(ReplayState("true", "orders", 2))
    target = Lake(tmp_path / "copy")

    def progress(done: int, total: int) -> None:
        if done == total:  # this run is paused before its last commit
            copy(spark, lake, target)
            small_archive.seal(3, [archived(99)])
            export(spark, database, target)
            ReplayLog(target, "again").end(Portion(1, 9, 3), SendResult(3, 0))

    with pytest.raises(BadLake, match=r"Another copy to .* is running"):
        copy(spark, lake, Lake(target.root), progress)
    assert target.last_batch() == 3
    state = ReplayLog(target, "again").state(spark)
    assert state is not None
    assert state.sent == 3
    assert audit(spark, database, target).findings == []


def test_a_copy_killed_among_its_records_goes_on(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database = old_lake(spark, small_archive, lake)
    retention(spark, lake, FIRST_DAY + timedelta(days=1), ["orders"])

    class Dying(Lake):
        def table(self, spec: TableSpec) -> DeltaTable | None:
            if spec is REMOVED and OPENING.name in self.root.names():
                raise Killed
            return super().table(spec)

    with pytest.raises(Killed):
        copy(spark, lake, Dying(tmp_path / "copy"))
    target = Lake(tmp_path / "copy")
    assert copy(spark, lake, target).messages == 0
    assert target.read(spark, OPENING).count() == lake.read(spark, OPENING).count() == 0
    assert audit(spark, database, target).findings == []


def test_a_copy_of_a_lake_that_does_not_record_its_first_batch_records_it(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database = Database.from_url(small_archive.url)
    for number in (1, 2):
        small_archive.seal(number, [archived(number)])
    small_archive.remove(1, "expired")

    class Older(Lake):
        """A lake as earlier versions made it."""

        def _commit(
            self, spec: TableSpec, table: DeltaTable | None, change: Change, *transactions: Transaction
        ) -> bool:
            known = [one for one in transactions if one.app_id != FIRST_BATCH_KEY]
            return super()._commit(spec, table, change, *known)

    export(spark, database, Older(lake.root))
    assert lake.first_batch() == FirstBatch(2, noted=False)
    target = Lake(tmp_path / "copy")
    copy(spark, lake, target)
    assert target.first_batch() == FirstBatch(2, noted=True)
    assert audit(spark, database, target).findings == []


def test_a_copy_whose_source_was_compacted_and_vacuumed_tells_what_to_do(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    old_lake(spark, small_archive, lake)

    def progress(done: int, total: int) -> None:
        if not done:
            compact(spark, lake)
            lake.archive_table().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    with pytest.raises(
        BadLake, match=r"parquet is missing from the lake or cannot be read.* copy into a new directory"
    ):
        copy(spark, lake, Lake(tmp_path / "copy"), progress)
    assert copy(spark, lake, Lake(tmp_path / "new")).messages == 16
