"""A lake is kept in order without a message changing: compaction, vacuum, retention; and a snapshot beside the archive."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from peeklock_pipeline.ages import parse_age
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import DataFile, write
from peeklock_pipeline.jobs.archive_rows import ArchiveRows
from peeklock_pipeline.jobs.audit import audit
from peeklock_pipeline.jobs.batch_portions import HIGHEST
from peeklock_pipeline.jobs.compact import (
    VACUUM_FILES,
    CompactResult,
    VacuumResult,
    compact,
    mergeable,
    small_files,
    vacuum,
)
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.retention import first_kept_day, retention
from peeklock_pipeline.jobs.snapshot import snapshot
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import LoggedFiles, files_of
from peeklock_pipeline.refusals import BadLake, BadOption
from peeklock_pipeline.storage import Storage
from peeklock_pipeline.table_specs import ARCHIVE, MESSAGES, REMOVED, TableSpec
from peeklock_pipeline.tables import Change, ExportPosition
from peeklock_pipeline.transforms.audit import batches
from pyspark.sql import SparkSession

from tests.pipeline.archive import DAY, DEAD_LETTERED, NOON, Archive, archived, live
from tests.pipeline.histories import ended, fill

FIRST_DAY = date(2026, 9, 21)


def exported(spark: SparkSession, archive: Archive, lake: Lake) -> Database:
    """Three exports of two queues and two days each: six files."""
    database = Database.from_url(archive.url)
    for number in range(1, 4):
        rows = [
            archived(
                number * 100 + n, queue=("orders", "billing")[n % 2], settled_at=NOON + n // 2 % 2 * DAY, body=b"\0\xff"
            )
            for n in range(20)
        ]
        archive.seal(number, rows)
        export(spark, database, lake)
    return database


def contents(spark: SparkSession, lake: Lake) -> list[object]:
    return lake.read(spark).orderBy("sequence_number").collect()


def facts(spark: SparkSession, lake: Lake) -> list[object]:
    archive = ArchiveRows.unchecked(spark, lake, lake.archive_table())
    return batches(archive.located(0, HIGHEST), archive.events(0, HIGHEST)).orderBy("number").collect()


def orphan(lake: Lake, database: Database, age_days: int) -> Path:
    """A file that belongs to nothing, as a crash leaves it."""
    [file, *_] = write(database.read(1, 1), lake.directory(ARCHIVE), ARCHIVE)
    path = Path(f"{lake.directory(ARCHIVE)}/{file.path}")
    grow_old(path, age_days)
    return path


def grow_old(path: Path, days: float) -> None:
    """Let a file be this old."""
    os.utime(path, (time.time() - days * 86_400,) * 2)


def test_compaction_leaves_one_file_per_day_and_every_message(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = exported(spark, small_archive, lake)
    before, known = contents(spark, lake), facts(spark, lake)
    assert compact(spark, lake) == CompactResult(files=2, files_before=6)
    assert compact(spark, lake) == CompactResult(files=2, files_before=2)
    assert (contents(spark, lake), facts(spark, lake)) == (before, known)
    assert len(before) == 60
    small_archive.seal(4, [archived(1000)])
    assert export(spark, database, lake).messages == 1


def test_a_compaction_tells_readers_of_changes_that_no_row_changed(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    exported(spark, small_archive, lake)
    compact(spark, lake)
    version = lake.archive_table().version()
    log = Path(f"{lake.directory(ARCHIVE)}/_delta_log/{version:020}.json").read_text()
    actions = [json.loads(line) for line in log.splitlines()]
    files = [file for action in actions for kind, file in action.items() if kind in ("add", "remove")]
    assert [file["dataChange"] for file in files] == [False] * 8


def test_vacuum_removes_what_belongs_to_nothing_and_spares_what_may_yet(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = exported(spark, small_archive, lake)
    old, young = orphan(lake, database, 8), orphan(lake, database, 6)
    size = old.stat().st_size
    done = vacuum(lake)
    assert (done.files, done.bytes) == (1, size)
    assert (old.exists(), young.exists()) == (False, True)
    assert len(contents(spark, lake)) == 60
    grow_old(young, 75 / 24 / 60)
    assert vacuum(lake, timedelta(minutes=90)).files == 0
    with pytest.raises(BadOption, match="may belong to a running export"):
        vacuum(lake, timedelta(minutes=59))
    assert young.exists()


def test_a_vacuum_and_a_compaction_beside_an_export_lose_no_message(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = exported(spark, small_archive, lake)
    small_archive.seal(4, [archived(1000), archived(1001)])

    class Busy(Lake):
        """A lake that is compacted and vacuumed when the files of an export are written, and not committed yet."""

        def add_batches(
            self, files: Sequence[DataFile], after: ExportPosition, last: ExportPosition, begun: int
        ) -> bool:
            assert compact(spark, lake).files == 2
            assert vacuum(lake, timedelta(hours=1)).files == 0
            return super().add_batches(files, after, last, begun)

    assert export(spark, database, Busy(lake.root)).messages == 2
    assert len(contents(spark, lake)) == 62
    assert audit(spark, database, lake).findings == []


def test_an_export_whose_files_a_vacuum_has_removed_commits_nothing(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = exported(spark, small_archive, lake)
    small_archive.seal(4, [archived(1000), archived(1001)])

    class Slow(Lake):
        """A lake to which an export commits two hours after it has written its files, with a vacuum in between."""

        def add_batches(
            self, files: Sequence[DataFile], after: ExportPosition, last: ExportPosition, begun: int
        ) -> bool:
            for file in files:
                grow_old(Path(f"{lake.directory(ARCHIVE)}/{file.path}"), 2 / 24)
            assert vacuum(lake, timedelta(hours=1)).files == len(files)
            return super().add_batches(files, after, last, begun)

    with pytest.raises(BadLake, match="was removed before this job could commit it"):
        export(spark, database, Slow(lake.root))
    assert (lake.last_batch(), len(contents(spark, lake))) == (3, 60)
    assert export(spark, database, lake).messages == 2


def committed_late(archive: Archive, lake: Lake, database: Database, number: int) -> Callable[[], None]:
    """Write the files of a batch, which are two hours old; the function commits them."""
    archive.seal(number, [archived(number * 1000), archived(number * 1000 + 1)])
    [batch] = [batch for batch in database.batches() if batch.number == number]
    files = list(write(database.read(number, number), lake.directory(ARCHIVE), ARCHIVE))
    for file in files:
        grow_old(Path(f"{lake.directory(ARCHIVE)}/{file.path}"), 2 / 24)
    after = lake.export_position()

    def commit() -> None:
        if lake.export_position() == after:
            assert lake.add_batches(files, after, ExportPosition(number, batch.sealed_at), 1)

    return commit


def test_a_vacuum_spares_what_was_committed_after_it_opened_the_table(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = exported(spark, small_archive, lake)
    old = orphan(lake, database, 8)
    commit = committed_late(small_archive, lake, database, 4)

    class Busy(Lake):
        """A lake to which an export commits when a vacuum has opened its tables."""

        def tables(self) -> list[tuple[Storage, DeltaTable]]:
            opened = super().tables()
            commit()
            return opened

    assert vacuum(Busy(lake.root), timedelta(hours=1)).files == 1
    assert (old.exists(), len(contents(spark, lake))) == (False, 62)


def test_a_vacuum_spares_what_was_committed_after_it_listed_it(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = exported(spark, small_archive, lake)
    old = orphan(lake, database, 8)
    commit = committed_late(small_archive, lake, database, 4)
    listed: list[tuple[int, int]] = []

    def report_progress(done: int, total: int) -> None:
        listed.append((done, total))
        commit()

    assert vacuum(lake, timedelta(hours=1), report_progress).files == 1
    assert listed[0] == (0, 2)
    assert (old.exists(), len(contents(spark, lake))) == (False, 62)
    assert audit(spark, database, lake).findings == []


def test_a_vacuum_removes_files_in_portions_and_of_directories_with_any_name(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    exported(spark, small_archive, lake)
    names = [f"queue=a%20b/ä {number} %25 #x.parquet" for number in range(VACUUM_FILES + 1)]
    for name in names:
        path = Path(f"{lake.directory(ARCHIVE)}/{name}")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"old")
        grow_old(path, 8)
    found: list[tuple[int, int]] = []
    done = vacuum(lake, progress=lambda *so_far: found.append(so_far))
    assert (done.files, done.bytes) == (len(names), 3 * len(names))
    assert found[:3] == [(0, len(names)), (VACUUM_FILES, len(names)), (len(names), len(names))]
    assert not any(path.is_file() for path in Path(f"{lake.directory(ARCHIVE)}/queue=a%20b").iterdir())
    assert len(contents(spark, lake)) == 60


def test_a_vacuum_passes_over_files_that_another_one_has_removed(lake: Lake) -> None:
    fill(lake, [ended(1, 0, 1, 1, 2)])
    for number in range(3):
        path = Path(f"{lake.directory(ARCHIVE)}/date=2026-01-01/{number}.parquet")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"old")
        grow_old(path, 8)
    others: list[VacuumResult] = []

    def report_progress(done: int, total: int) -> None:
        if not others:
            others.append(VacuumResult(0, 0))
            others.append(vacuum(Lake(lake.root)))

    assert vacuum(lake, progress=report_progress) == VacuumResult(0, 0)
    assert others[1] == VacuumResult(3, 9)


def test_a_compaction_whose_files_were_removed_meanwhile_is_refused(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    exported(spark, small_archive, lake)

    class Busy(Lake):
        """A lake from which messages are removed when a compaction has written its files."""

        def exchange(self, spec: TableSpec, change: Change, *transactions: object) -> None:
            retention(spark, lake, FIRST_DAY + timedelta(days=1))
            super().exchange(spec, change)

    with pytest.raises(BadLake, match="was changed by another job meanwhile"):
        compact(spark, Busy(lake.root))
    assert len(contents(spark, lake)) == 30


@pytest.mark.behaviour("S4.17")
def test_retention_removes_days_of_one_queue_or_of_all_and_keeps_count(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    exported(spark, small_archive, lake)
    assert retention(spark, lake, FIRST_DAY).messages == 0
    assert retention(spark, lake, FIRST_DAY + timedelta(days=1), ["orders"]).messages == 15
    left = lake.read(spark).groupBy("queue", "date").count().collect()
    assert sorted((row["queue"], row["date"], row["count"]) for row in left) == [
        ("billing", FIRST_DAY, 15),
        ("billing", FIRST_DAY + timedelta(days=1), 15),
        ("orders", FIRST_DAY + timedelta(days=1), 15),
    ]
    counts = lake.removed(spark, lake.archive_table()).orderBy("export_batch").collect()
    assert [(row.queue, row.date, row.export_batch, row.messages) for row in counts] == [
        ("orders", FIRST_DAY, number, 5) for number in (1, 2, 3)
    ]
    assert retention(spark, lake, FIRST_DAY + timedelta(days=2)).messages == 45
    assert contents(spark, lake) == []


@pytest.mark.parametrize("left", [None, b"garbage"])
def test_a_file_that_is_missing_or_damaged_is_named(
    spark: SparkSession, small_archive: Archive, lake: Lake, left: bytes | None
) -> None:
    exported(spark, small_archive, lake)
    [lost, *_] = files_of(lake.archive_table())
    path = Path(f"{lake.directory(ARCHIVE)}/{lost.path}")
    path.unlink()
    if left:
        path.write_bytes(left)
    for job in (lambda: retention(spark, lake, FIRST_DAY + timedelta(days=2)), lambda: compact(spark, lake)):
        with pytest.raises(BadLake, match=f"{lost.path} is missing from the lake or cannot be read"):
            job()


def test_a_file_that_was_replaced_is_neither_merged_nor_removed(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    exported(spark, small_archive, lake)
    [replaced, *_] = files_of(lake.archive_table())
    path = Path(f"{lake.directory(ARCHIVE)}/{replaced.path}")
    pq.write_table(pq.ParquetFile(path).read().slice(1), path)
    for job in (lambda: retention(spark, lake, FIRST_DAY + timedelta(days=2)), lambda: compact(spark, lake)):
        with pytest.raises(BadLake, match=f"{replaced.path} was replaced: it has {replaced.rows - 1} messages"):
            job()


def test_a_removal_that_died_before_its_commit_does_not_count(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    exported(spark, small_archive, lake)

    class Dying(Lake):
        def remove(self, change: object, removal: str, *rest: object) -> None:
            raise BadLake("died")

    with pytest.raises(BadLake, match="died"):
        retention(spark, Dying(lake.root), FIRST_DAY + timedelta(days=1))
    assert lake.read(spark, REMOVED).count() == 6
    assert lake.removed(spark, lake.archive_table()).count() == 0
    assert len(contents(spark, lake)) == 60
    assert retention(spark, lake, FIRST_DAY + timedelta(days=1)).messages == 30
    assert lake.removed(spark, lake.archive_table()).count() == 6


def test_days_go_once_their_last_message_is_old_enough() -> None:
    assert first_kept_day(timedelta(days=2), datetime(2026, 9, 23, 18, tzinfo=UTC)) == FIRST_DAY


@pytest.mark.parametrize(("text", "days"), [("400d", 400), ("48h", 2), ("1440m", 1), ("86400s", 1)])
def test_an_age_is_a_number_and_a_unit(text: str, days: int) -> None:
    assert parse_age(text) == timedelta(days=days)


@pytest.mark.parametrize("text", ["", "400", "d", "-1d", "1w", "1.5d"])
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="An age is a number and a unit"):
        parse_age(text)


def test_a_snapshot_is_what_is_in_queues_and_replaces_the_one_before(
    spark: SparkSession, archive: Archive, lake: Lake
) -> None:
    database = Database.from_url(archive.url)
    now = datetime(2026, 9, 21, tzinfo=UTC)
    assert snapshot(spark, database, lake, now - timedelta(hours=1)).messages == 0
    rows = [
        live(1, body=b"\0"),
        live(2, state=DEAD_LETTERED, dead_lettered_at=NOON),
        live(3, state=2, locked_until=NOON),
    ]
    archive.add_to_queue(7, "orders", rows)
    assert snapshot(spark, database, lake, now).messages == 3
    found = lake.read(spark, MESSAGES).orderBy("sequence_number").toArrow().to_pylist()
    assert [(row["queue"], row["state"], row["taken_at"]) for row in found] == [
        ("orders", state, now) for state in ("available", "dead_lettered", "locked")
    ]
    assert found[0]["body"] == b"\0"
    Archive.empty(archive.url)
    assert snapshot(spark, database, lake, now + timedelta(hours=1)).messages == 0
    assert lake.read(spark, MESSAGES).count() == 0


def test_small_files_of_a_day_are_merged_and_large_ones_stay() -> None:
    def files(*rows: tuple[str, int, int, int | None]) -> LoggedFiles:
        named = [{"path": path, "partition.date": date(2026, 9, day)} for path, day, *_ in rows]
        sizes = [{"size": size, "rows": count} for *_, size, count in rows]
        return LoggedFiles(pa.Table.from_pylist([name | size for name, size in zip(named, sizes, strict=True)]))

    def groups(small: LoggedFiles) -> list[list[str]]:
        return [[file.path for file in group] for group in mergeable(small, ARCHIVE)]

    large, many = ("e", 21, 8 << 20, 10), ("f", 21, 1, 1_000_000)
    small = small_files(files(("b", 21, 5 << 20, 10), ("c", 22, 1, 10), ("a", 21, 1, None), large, many))
    assert small.paths == ["b", "c", "a"]
    assert groups(small) == [["a", "b"]]
    fifty = [(f"{number:03}", 21, 5 << 20, 10) for number in range(50)]
    assert [len(group) for group in groups(files(*fifty))] == [25, 25]
    assert [len(group) for group in groups(files(*fifty[:26]))] == [25]
