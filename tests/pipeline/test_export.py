"""An export copies each message into the lake exactly once, after any crash, and reports what it could not copy."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction
from peeklock_pipeline.database import Batch, Database
from peeklock_pipeline.files import DataFile, write
from peeklock_pipeline.first_batch import LAST_BATCH_KEY
from peeklock_pipeline.jobs.audit import audit
from peeklock_pipeline.jobs.export import LISTED_BATCHES, ExportResult, ExportTask, export, export_tasks, portions
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import files_of
from peeklock_pipeline.refusals import BadArchive, BadLake, DatabaseUnavailable
from peeklock_pipeline.table_specs import ARCHIVE, MESSAGE_COLUMNS, TableSpec
from peeklock_pipeline.tables import DESCRIPTION_PREFIX, FORMAT, SEALED_AT_KEY, Change, ExportPosition, commit
from pyspark.sql import SparkSession

from app.store.migrate import migrate
from tests.pipeline.archive import DAY, NOON, Archive, archived, digest
from tests.server_drivers import DRIVERS, run_in_thread
from tests.servers import MariaServer, PostgresServer, ServerProcess

MINUTE = 60_000_000


def filled(archive: Archive, batches: int = 3, rows: int = 40) -> Database:
    """Batches of messages of two queues that ended on three days."""
    for number in range(1, batches + 1):
        numbers = range((number - 1) * rows + 1, number * rows + 1)
        archive.seal(
            number,
            [archived(n, queue=("orders", "billing.eu-1")[n % 2], settled_at=NOON + n % 3 * DAY) for n in numbers],
        )
    return Database.from_url(archive.url)


def numbers(spark: SparkSession, lake: Lake) -> list[int]:
    """The sequence numbers in the lake, with repetitions."""
    return sorted(row[0] for row in lake.read(spark).select("sequence_number").collect())


def test_every_message_is_in_the_lake_once_and_a_second_export_finds_nothing(
    spark: SparkSession, archive: Archive, lake: Lake
) -> None:
    database = filled(archive)
    reported: list[tuple[int, int]] = []
    done = export(spark, database, lake, lambda *counts: reported.append(counts))
    assert (done.batches, done.messages, done.missed, done.last_batch) == (3, 120, 0, 3)
    assert reported == [(120, 120)]
    assert numbers(spark, lake) == list(range(1, 121))
    assert export(spark, database, lake) == ExportResult(0, 0, 0, 0, 3)
    archive.seal(4, [archived(121)])
    assert export(spark, database, lake).messages == 1
    assert numbers(spark, lake) == sorted(archive.numbers())


def test_any_reader_of_parquet_or_delta_sees_what_the_database_has(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = filled(small_archive)
    export(spark, database, lake)
    directory = str(lake.directory(ARCHIVE))
    stored = database.read(1, 3).sort_by("sequence_number").to_pylist()
    by_delta = pa.table(DeltaTable(directory).to_pyarrow_dataset().to_table())
    assert by_delta.select(MESSAGE_COLUMNS).sort_by("sequence_number").to_pylist() == stored
    by_spark = spark.read.option("basePath", directory).parquet(*DeltaTable(directory).file_uris())
    assert sorted(by_spark.select("sequence_number", "queue").collect()) == sorted(
        (row["sequence_number"], row["queue"]) for row in stored
    )
    read = lake.read(spark).select(*MESSAGE_COLUMNS).orderBy("sequence_number")
    assert read.toArrow().to_pylist() == stored


def test_a_task_writes_one_file_of_each_day_in_the_order_of_queues(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    export(spark, filled(small_archive), lake)
    found = lake.read(spark).groupBy("queue", "date").count().collect()
    assert sorted(row["count"] for row in found) == [20] * 6
    files = files_of(lake.archive_table())
    assert sorted(Path(file.path).parent for file in files) == [Path(f"date=2026-09-{day}") for day in (21, 22, 23)]
    for file in files:
        rows = pq.ParquetFile(f"{lake.directory(ARCHIVE)}/{file.path}").read(["queue", "sequence_number"])
        assert rows == rows.sort_by([("queue", "ascending"), ("sequence_number", "ascending")])


def test_readers_skip_files_by_day_and_by_the_statistics_in_the_log(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    small_archive.seal(1, [archived(1, queue="a"), archived(2, queue="m")])
    small_archive.seal(
        2, [archived(3, queue="n", settled_at=NOON + DAY), archived(4, queue="z", settled_at=NOON + DAY)]
    )
    export(spark, Database.from_url(small_archive.url), lake)
    table = lake.archive_table()
    first, second = files_of(table)
    for within, expected in (
        ({"date": (date(2026, 9, 22), date(2026, 9, 30))}, [second]),
        ({"queue": ("b", "c")}, [first]),
        ({"queue": ("o", "p")}, [second]),
        ({"queue": ("mm", "mn")}, []),
        ({"sequence_number": (2, 3)}, [first, second]),
        ({"export_batch": (2, 9)}, [second]),
        ({"settled_at": (datetime.fromtimestamp(NOON / 1e6 + 1, UTC), datetime.max.replace(tzinfo=UTC))}, [second]),
        ({"queue": ("a", "z"), "export_batch": (1, 1)}, [first]),
        ({"priority": (0, 9)}, [first, second]),
    ):
        assert [*files_of(table, within)] == expected


def test_few_rows_with_large_bodies_are_a_row_group(small_archive: Archive, lake: Lake) -> None:
    small_archive.seal(1, [archived(n, body=bytes(40 << 20)) for n in (1, 2)])
    small_archive.seal(2, [archived(n) for n in range(3, 40)])
    database, directory = Database.from_url(small_archive.url), lake.directory(ARCHIVE)
    files = [file for number in (1, 2) for file in write(database.read(number, number), directory, ARCHIVE)]
    assert [pq.read_metadata(f"{directory}/{file.path}").num_row_groups for file in files] == [2, 1]


def test_no_file_with_a_matching_row_is_skipped(small_archive: Archive, lake: Lake) -> None:
    database, directory = Database.from_url(small_archive.url), lake.directory(ARCHIVE)
    times = [NOON + micros for micros in (0, 1, 999, 1000, 1001, DAY // 2 - 1)]
    names = ["a", "A", "a.b", "a-b", "z" * 200, "10", "9"]
    rows = [archived(n, settled_at=times[n % 6], enqueued_at=times[n % 5], queue=names[n % 7]) for n in range(1, 31)]
    small_archive.seal_all({n: rows[3 * n - 3 : 3 * n] for n in range(1, 11)})
    written = [file for n in range(1, 11) for file in write(database.read(n, n), directory, ARCHIVE)]
    earlier = [
        replace(file, statistics=f'{{"numRecords": {file.rows}}}') for file in written[:2]
    ]  # of earlier versions
    assert commit(directory, None, ARCHIVE, Change([*earlier, *written[2:]]))
    for columns in (["settled_at"], ["enqueued_at"], ["queue"], ["sequence_number"], ["queue", "settled_at"]):
        table = lake.archive_table()
        for file in files_of(table):
            for row in pq.ParquetFile(f"{directory}/{file.path}").read().to_pylist():
                assert file in files_of(table, {name: (row[name], row[name]) for name in columns})
    assert len(files_of(table, {"queue": ("B", "B")})) < len(written)


def test_tasks_are_neighbouring_batches_up_to_a_number_of_rows() -> None:
    batches = [batch(1), batch(2), batch(3), batch(4, removed_at=1), batch(5), batch(7)]
    assert export_tasks(batches, most=250) == [
        ExportTask(1, 2, 200),
        ExportTask(3, 3, 100),
        ExportTask(5, 5, 100),
        ExportTask(7, 7, 100),
    ]
    assert export_tasks([batch(1)], most=10) == [ExportTask(1, 1, 100)]


def test_a_commit_takes_a_bounded_number_of_messages() -> None:
    many = [batch(number, rows=3_000_000) for number in range(1, 6)]
    assert [[batch.number for batch in portion] for portion in portions(many)] == [[1, 2], [3, 4], [5]]
    assert list(portions([])) == []
    small = (batch(number, rows=1) for number in range(1, LISTED_BATCHES + 2))
    assert [(portion[0].number, len(portion)) for portion in portions(small)] == [(1, LISTED_BATCHES), (10_001, 1)]
    assert len(list(portions([batch(1, rows=7_000_000)]))) == 1


@pytest.mark.nightly
def test_a_lake_of_the_previous_format_gets_digests_with_its_next_export(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = Database.from_url(small_archive.url)
    small_archive.seal_numbers(1, [archived(1), archived(2)])
    before = TableSpec(
        "archive",
        pa.schema([field for field in ARCHIVE.schema if field.name not in ("content_digest", "row_checksum")]),
        ARCHIVE.partitions,
    )
    files = list(write(database.read(1, 1).drop_columns("content_digest"), lake.directory(ARCHIVE), before))
    ended = (Transaction(LAST_BATCH_KEY, 1), Transaction(SEALED_AT_KEY, NOON + 1))
    assert commit(lake.directory(ARCHIVE), None, before, Change(files), ended)
    DeltaTable(str(lake.directory(ARCHIVE))).alter.set_table_description(f"{DESCRIPTION_PREFIX}1")
    assert audit(spark, database, lake).findings == []
    small_archive.seal(2, [archived(3)])
    assert export(spark, database, lake).messages == 1
    found = DeltaTable(str(lake.directory(ARCHIVE)))
    assert [field.name for field in found.schema().fields if field.name == "content_digest"] == ["content_digest"]
    assert found.metadata().description == f"{DESCRIPTION_PREFIX}{FORMAT}"
    rows = lake.read(spark).orderBy("sequence_number").select("content_digest", "row_checksum").collect()
    assert [row.content_digest for row in rows] == [None, None, archived(3)["content_digest"]]
    assert [row.row_checksum is None for row in rows] == [True, True, False]
    assert audit(spark, database, lake).findings == []


# ---- crashes ---------------------------------------------------------------------------------------------------------


def test_a_worker_that_dies_in_its_task_is_replaced(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database = filled(small_archive)
    died = tmp_path / "died"

    class Mortal(Database):
        """Kills the worker once, when it has read half of its range."""

        __slots__ = ()

        def chunks(self, first: int, last: int, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
            for chunk in database.chunks(first, last):
                yield chunk.slice(0, 50)
                if not died.exists():
                    died.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield chunk.slice(50)

    assert export(spark, Mortal(database.url, database.engine), lake).messages == 120
    assert died.exists()
    assert numbers(spark, lake) == list(range(1, 121))
    assert len(list(Path(str(lake.root)).rglob("*.parquet"))) > len(
        lake.archive_table().file_uris()
    )  # the killed worker's files


@pytest.mark.parametrize("server", [PostgresServer, pytest.param(MariaServer, marks=pytest.mark.nightly)])
def test_a_database_that_crashes_during_a_read_leaves_the_lake_unchanged(
    spark: SparkSession, lake: Lake, private_server: Callable[..., ServerProcess], server: type[ServerProcess]
) -> None:
    running = private_server(server)
    archive = fresh(running)
    database = filled(archive)

    class Cut(Database):
        __slots__ = ()

        def chunks(self, first: int, last: int, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
            for chunk in database.chunks(first, last):
                yield chunk.slice(0, 50)
            os.kill(pid, signal.SIGKILL)
            yield from database.chunks(first, last)

    pid = running.pid
    with pytest.raises(DatabaseUnavailable, match="cannot be read"):
        export(spark, Cut(database.url, database.engine), lake)
    assert lake.table(ARCHIVE) is None
    running.kill()
    running.start()
    assert export(spark, database, lake).messages == 120
    assert numbers(spark, lake) == list(range(1, 121))


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_batches_removed_before_the_export_are_reported_as_missed(
    spark: SparkSession, archive: Archive, lake: Lake
) -> None:
    database = filled(archive)
    archive.remove(2, "expired")
    done = export(spark, database, lake)
    assert (done.batches, done.messages, done.missed) == (3, 80, 40)
    assert numbers(spark, lake) == [*range(1, 41), *range(81, 121)]


def test_an_export_lists_a_bounded_number_of_batches(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    database = filled(small_archive)
    asked: list[tuple[int, int | None, int | None]] = []

    class Observed(Database):
        __slots__ = ()

        def batches(self, after: int = 0, last: int | None = None, most: int | None = None) -> list[Batch]:
            asked.append((after, last, most))
            return database.batches(after, last, most)

    assert export(spark, Observed(database.url, database.engine), lake).messages == 120
    assert asked == [(0, 3, LISTED_BATCHES), (3, 3, LISTED_BATCHES)]
    asked.clear()
    assert export(spark, Observed(database.url, database.engine), lake).messages == 0
    assert asked == [(2, 3, None), (3, 3, LISTED_BATCHES)]  # the lake's own last batch, and what follows


def test_a_batch_removed_during_its_read_is_missed_as_a_whole(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = filled(small_archive)
    listed: list[list[Batch]] = []

    class Late(Database):
        """Lists its batches, and loses one before they are read."""

        __slots__ = ()

        def batches(self, after: int = 0, last: int | None = None, most: int | None = None) -> list[Batch]:
            listed.append(database.batches(after, last, most))
            if len(listed) == 1:
                small_archive.remove(2, "expired")
            return listed[-1]

    done = export(spark, Late(database.url, database.engine), lake)
    assert (done.messages, done.missed) == (80, 40)
    assert numbers(spark, lake) == [*range(1, 41), *range(81, 121)]


def test_a_batch_that_lacks_a_message_is_not_exported(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    database = filled(small_archive)
    small_archive.delete_message(7)
    with pytest.raises(BadArchive, match="were sealed with 120 messages, and there are 119"):
        export(spark, database, lake)
    assert lake.table(ARCHIVE) is None


def test_a_lake_remembers_its_database(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    database = filled(small_archive)
    export(spark, database, lake)
    again = Archive.empty(small_archive.url)
    for number in range(1, 5):
        again.seal(number, [archived(number)], sealed_at=NOON + MINUTE)
    with pytest.raises(BadLake, match="holds what was exported from another database"):
        export(spark, database, lake)
    Archive.empty(small_archive.url)
    with pytest.raises(BadLake, match="has no batch 3 like"):
        export(spark, database, lake)
    assert numbers(spark, lake) == list(range(1, 121))


def test_an_export_that_died_before_it_wrote_a_message_is_run_again(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = filled(small_archive)

    class Dying(Lake):
        def record_opening(self, accounts: Iterable[pa.Table]) -> None:
            super().record_opening(accounts)
            raise BadLake("died")

    with pytest.raises(BadLake, match="died"):
        export(spark, database, Dying(lake.root))
    assert export(spark, database, Lake(lake.root)).messages == 120
    assert audit(spark, database, lake).findings == []


def test_of_two_exports_at_once_one_commits(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    database = filled(small_archive)

    class Overtaken(Lake):
        """A lake to which another export commits just before this one."""

        def add_batches(
            self, files: Sequence[DataFile], after: ExportPosition, last: ExportPosition, begun: int
        ) -> bool:
            assert export(spark, database, lake).messages == 120
            return super().add_batches(files, after, last, begun)

    with pytest.raises(BadLake, match="Another export has committed to this lake meanwhile"):
        export(spark, database, Overtaken(lake.root))
    assert numbers(spark, lake) == list(range(1, 121))
    assert export(spark, database, lake).messages == 0


@pytest.mark.parametrize("overtaken_by", ["this version", "the previous version"])
def test_of_two_exports_to_a_lake_of_the_previous_format_one_commits(
    spark: SparkSession, small_archive: Archive, lake: Lake, overtaken_by: str
) -> None:
    database = filled(small_archive)
    export(spark, database, lake)
    directory = lake.directory(ARCHIVE)
    small_archive.seal(4, [archived(121)])
    DeltaTable(str(directory)).alter.set_table_description(f"{DESCRIPTION_PREFIX}{FORMAT - 1}")

    def export_as_before() -> None:
        [file] = write(database.read(4, 4), directory, ARCHIVE)
        adds = [AddAction(file.path, file.size, file.partition, 0, True, file.statistics)]
        ended = [Transaction(LAST_BATCH_KEY, 4), Transaction(SEALED_AT_KEY, NOON + 4)]
        table = DeltaTable(str(directory))
        table.create_write_transaction(
            adds, "append", table.schema(), ["date"], commit_properties=CommitProperties(app_transactions=ended)
        )

    class Overtaken(Lake):
        """A lake to which another export commits just after this one has opened it for its commit."""

        def _commit(
            self, spec: TableSpec, table: DeltaTable | None, change: Change, *transactions: Transaction
        ) -> bool:
            if lake.last_batch() == 3:
                export(spark, database, lake) if overtaken_by == "this version" else export_as_before()
            return super()._commit(spec, table, change, *transactions)

    with pytest.raises(BadLake, match="Another export has committed to this lake meanwhile"):
        export(spark, database, Overtaken(lake.root))
    assert numbers(spark, lake) == list(range(1, 122))


def test_a_concurrent_compaction_does_not_fail_an_export(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = filled(small_archive)
    export(spark, database, lake)
    small_archive.seal(4, [archived(121, queue="orders")])
    export(spark, database, lake)
    small_archive.seal(5, [archived(122)])
    compacted: list[object] = []

    class Busy(Lake):
        """A lake that is compacted just after an export has opened it for its commit."""

        def table(self, spec: TableSpec) -> DeltaTable | None:
            found = super().table(spec)
            if len(compacted) < 2:
                compacted.append(lake.archive_table().optimize.compact()["numFilesRemoved"])
            return found

    assert export(spark, database, Busy(lake.root)).messages == 1
    assert numbers(spark, lake) == list(range(1, 123))


def batch(number: int, rows: int = 100, removed_at: int | None = None) -> Batch:
    return Batch(number, rows, digest([number]), NOON + number, removed_at)


def fresh(server: ServerProcess) -> Archive:
    """An archive on its own server."""
    url = DRIVERS[server.kind].create(server.url, "peeklock")
    run_in_thread(lambda: migrate(url))
    return Archive.empty(url)
