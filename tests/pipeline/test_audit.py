"""An audit names what was lost and what is there twice, and finds nothing where nothing is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from peeklock_pipeline.columns import ARCHIVE
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import write
from peeklock_pipeline.jobs.audit import Finding, audit
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.retention import retention
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.refusals import BadOption
from peeklock_pipeline.transforms.audit import batches
from pyspark.sql import SparkSession

from tests.pipeline.archive import DAY, DEAD_LETTERED, NOON, Archive, archived, digest, live

Row = dict[str, Any]
OUTCOMES = ("completed", "received", "expired", "purged", "cancelled")


def history(archive: Archive) -> Database:
    """Two queues and every way to end: sealed, not yet sealed, still there."""
    archive.seal(1, [archived(n, outcome=OUTCOMES[n % 5]) for n in range(1, 21)])
    archive.seal(2, [archived(n, queue="billing", settled_at=NOON + DAY) for n in range(21, 41)])
    archive.hold(1, "orders", [live(41), live(42, state=DEAD_LETTERED), live(43, state=2)])
    return Database.at(archive.url)


def test_where_nothing_is_wrong_accepted_is_the_sum_of_all_that_became_of_messages(
    spark: SparkSession, archive: Archive, lake: Lake
) -> None:
    database = history(archive)
    export(spark, database, lake)
    archive.seal(3, [archived(44)])
    archive.fill("archive", [archived(45) | {"export_batch": None}])
    done = audit(spark, database, lake)
    assert (done.findings, done.unnamed, done.messages, done.batches) == ([], 0, 45, 2)
    assert [(line.queue, line.accepted, line.completed, line.received, line.live) for line in done.ledger] == [
        ("billing", 20, 20, 0, 0),
        ("orders", 25, 6, 4, 2),
    ]
    assert [line.dead_lettered for line in done.ledger] == [0, 1]


def test_the_digest_is_the_one_that_the_server_seals_with(spark: SparkSession, small: Archive, lake: Lake) -> None:
    numbers = [1, 2, 3, 10, 11, 100, 2**40]
    small.seal(1, [archived(number) for number in numbers])
    export(spark, Database.at(small.url), lake)
    [row] = batches(lake.read(spark)).collect()
    assert (row.number, row.messages, row.digest) == (1, 7, digest(numbers))


def test_a_message_that_the_lake_lost_is_named(spark: SparkSession, small: Archive, lake: Lake) -> None:
    database = history(small)
    export(spark, database, lake)
    rewrite(lake, lambda row: row["sequence_number"] != 7)
    done = audit(spark, database, lake)
    assert done.findings == [
        Finding("has 19 messages in the lake, and was sealed with 20", 1),
        Finding("is not in the lake", 1, "orders", 7, "id-7"),
    ]


def test_a_batch_that_the_database_has_no_more_is_still_known_to_lack_a_message(
    spark: SparkSession, small: Archive, lake: Lake
) -> None:
    database = history(small)
    export(spark, database, lake)
    small.remove(1, "trimmed")
    assert audit(spark, database, lake).findings == []
    rewrite(lake, lambda row: row["sequence_number"] != 7)
    assert audit(spark, database, lake).findings == [Finding("has 19 messages in the lake, and was sealed with 20", 1)]


def test_a_message_that_is_in_the_lake_twice_is_named(spark: SparkSession, small: Archive, lake: Lake) -> None:
    database = history(small)
    export(spark, database, lake)
    twice = database.read(1, 1).filter(pc.equal(database.read(1, 1)["sequence_number"], 5))
    lake.append(ARCHIVE, list(write(twice, lake.directory(ARCHIVE), ARCHIVE)))
    done = audit(spark, database, lake)
    assert done.findings == [
        Finding("is there 2 times: completed", None, "orders", 5, "id-5"),
        Finding("has 21 messages in the lake, and was sealed with 20", 1),
    ]
    assert [line.surplus for line in done.ledger] == [0, 1]


def test_a_message_that_ended_and_is_still_in_its_queue_is_named(
    spark: SparkSession, archive: Archive, lake: Lake
) -> None:
    database = history(archive)
    export(spark, database, lake)
    archive.fill("message", [live(3)])
    assert audit(spark, database, lake).findings == [
        Finding("is there 2 times: live and purged", None, "orders", 3, "id-3")
    ]


def test_a_batch_that_expired_before_it_was_exported_is_named(spark: SparkSession, small: Archive, lake: Lake) -> None:
    database = history(small)
    export(spark, database, lake)
    small.seal(3, [archived(50)])
    small.remove(3, "expired")
    small.seal(4, [archived(51)])
    export(spark, database, lake)
    assert audit(spark, database, lake).findings == [Finding("has 0 messages in the lake, and was sealed with 1", 3)]


def test_another_message_in_the_place_of_one_is_found_by_the_digest(
    spark: SparkSession, small: Archive, lake: Lake
) -> None:
    database = history(small)
    export(spark, database, lake)
    rewrite(lake, lambda row: True, lambda row: row | {"sequence_number": row["sequence_number"] % 7 or 700})
    assert (
        Finding("has 20 messages in the lake, and was sealed with 20: others", 2)
        in audit(spark, database, lake).findings
    )


def test_what_the_lakes_own_retention_removed_is_no_loss(spark: SparkSession, small: Archive, lake: Lake) -> None:
    database = history(small)
    export(spark, database, lake)
    assert retention(spark, lake, date(2026, 9, 22)).messages == 20
    done = audit(spark, database, lake)
    assert (done.findings, done.messages) == ([], 23)


def test_what_senders_say_they_sent_is_somewhere_or_named(
    spark: SparkSession, small: Archive, lake: Lake, tmp_path: Path
) -> None:
    database = history(small)
    export(spark, database, lake)
    log = tmp_path / "sent.jsonl"
    sent = ['"id-1"', '{"message_id": "id-30", "queue": "billing"}', '"id-42"', "", json.dumps('lo"st\u00fc')]
    log.write_text("\n".join(sent) + "\n", encoding="utf-8")
    done = audit(spark, database, lake, log)
    assert done.findings == [Finding("was sent, and is nowhere", message_id='lo"st\u00fc')]
    assert done.expected == 4
    log.write_text("id-1\n")
    with pytest.raises(BadOption, match="a line that names no message: id-1"):
        audit(spark, database, lake, log)


def rewrite(lake: Lake, keep: Callable[[Row], bool], change: Callable[[Row], Row] = lambda row: row) -> None:
    """Put other rows into the lake's files, as no job does it; the table's log stays as it was."""
    for file in lake.exported().file_uris():
        table = pq.ParquetFile(file).read()
        rows = [change(row) for row in table.to_pylist() if keep(row)]
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
