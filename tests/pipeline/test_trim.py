"""A trim reads only the files and batches that it wants to remove, in portions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.retention import retention
from peeklock_pipeline.jobs.trim import Server, TrimmedBatch, trim
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import files_of
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.table_specs import ARCHIVE
from pyspark.sql import SparkSession

from tests.faults.database_access import execute
from tests.peeklock_process import PeeklockProcess
from tests.pipeline.archive import DAY, NOON, Archive, archived
from tests.pipeline.counting_lake import CountingLake

HOUR = DAY // 24


@pytest.fixture
def server(small_archive: Archive, tmp_path: Path) -> Iterator[Server]:
    """A server of this archive."""
    running = PeeklockProcess(tmp_path, database_url=small_archive.url)
    with Server(running.url, None) as found:
        yield found
    running.end()


def exported(spark: SparkSession, archive: Archive, lake: Lake, batches: int) -> int:
    """Export old batches of two messages, each into a file of its own; returns when the first was sealed."""
    then = int(time.time() * 1_000_000) - 2 * DAY
    for number in range(1, batches + 1):
        sealed_at = then + (number - 1) * 8 * HOUR
        rows = [archived(number * 10 + n, settled_at=sealed_at, remove_at=sealed_at + 30 * DAY) for n in range(2)]
        archive.seal(number, rows, sealed_at)
        export(spark, Database.from_url(archive.url), lake)
    return then


def test_a_trim_reads_the_files_of_old_batches_portion_by_portion(
    spark: SparkSession, small_archive: Archive, lake: Lake, server: Server
) -> None:
    exported(spark, small_archive, lake, 5)
    counting = CountingLake(lake)

    done = trim(spark, server, counting, timedelta(days=1), portion_batches=2)
    assert counting.files_read() == [2] * 4  # rows and events of two portions; the fifth batch is young
    assert done.batches == [TrimmedBatch(number, 2, "trimmed") for number in range(1, 5)]

    counting.reads.clear()
    assert trim(spark, server, counting, timedelta(hours=1), portion_batches=2).batches == [
        TrimmedBatch(5, 2, "trimmed")
    ]
    assert counting.files_read() == [1, 1]
    assert small_archive.numbers() == set()


def test_a_trim_needs_the_files_of_its_batches_alone(
    spark: SparkSession, small_archive: Archive, lake: Lake, server: Server
) -> None:
    exported(spark, small_archive, lake, 2)
    [young] = files_of(lake.archive_table(), {"export_batch": (2, 2)})
    Path(f"{lake.directory(ARCHIVE)}/{young.path}").unlink()
    assert trim(spark, server, lake, timedelta(hours=44)).batches == [TrimmedBatch(1, 2, "trimmed")]
    with pytest.raises(BadLake, match="is missing from the lake or cannot be read; it held 2 messages"):
        trim(spark, server, lake, timedelta(hours=1))


def test_batches_with_changed_contents_or_removed_messages_stay(
    spark: SparkSession, small_archive: Archive, lake: Lake, server: Server
) -> None:
    then = int(time.time() * 1_000_000) - 2 * DAY
    about = [{"queue": "billing"}, {}, {"content_digest": bytes(16)}, {"queue": "billing"}]
    rows = [archived(number, settled_at=then, remove_at=then + 30 * DAY, **facts) for number, facts in enumerate(about)]
    small_archive.seal_all({number: [row] for number, row in enumerate(rows, 1)}, then)
    export(spark, Database.from_url(small_archive.url), lake)
    assert retention(spark, lake, datetime.now(UTC).date(), ["billing"]).messages == 2
    results = [batch.result for batch in trim(spark, server, lake, timedelta(days=1)).batches]
    assert results == ["removed_from_lake", "trimmed", "differs", "removed_from_lake"]


def test_the_batches_of_a_server_are_listed_from_a_number(
    spark: SparkSession, small_archive: Archive, lake: Lake, server: Server
) -> None:
    small_archive.seal_all({number: [archived(number)] for number in range(1, 1203)}, NOON)
    assert [batch.number for batch in server.batches(100)] == list(range(101, 1203))


def test_a_lake_of_another_archive_is_refused(
    spark: SparkSession, small_archive: Archive, lake: Lake, server: Server
) -> None:
    exported(spark, small_archive, lake, 2)
    execute(small_archive.url, "UPDATE export_batch SET sealed_at = sealed_at + 1 WHERE number = 2")
    with pytest.raises(BadLake, match="which has no batch 2 like it"):
        trim(spark, server, lake, timedelta(hours=1))
