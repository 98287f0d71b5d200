"""An audit names lost and duplicated messages, and finds nothing in an intact lake."""

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
from deltalake import DeltaTable, Transaction
from peeklock_pipeline.database import Batch, Database
from peeklock_pipeline.files import DataFile, write
from peeklock_pipeline.first_batch import LAST_BATCH_KEY, FirstBatch
from peeklock_pipeline.jobs.archive_rows import ArchiveRows
from peeklock_pipeline.jobs.audit import FROM_SCRATCH, audit, is_wrong
from peeklock_pipeline.jobs.batch_comparison import BatchComparison, BatchContents
from peeklock_pipeline.jobs.batch_portions import HIGHEST, LOWEST
from peeklock_pipeline.jobs.compact import compact
from peeklock_pipeline.jobs.copy import copy
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.findings import Finding
from peeklock_pipeline.jobs.retention import retention
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.located_rows import located
from peeklock_pipeline.logged_files import files_of
from peeklock_pipeline.ranges import rows_of
from peeklock_pipeline.refusals import BadLake, BadOption, LakeUnavailable
from peeklock_pipeline.table_specs import ARCHIVE, LOCATED_ROWS
from peeklock_pipeline.tables import SEALED_AT_KEY, Change, ExportPosition, commit
from peeklock_pipeline.transforms.audit import batches
from pyspark.sql import SparkSession

from tests.faults.database_access import execute
from tests.pipeline.archive import DAY, DEAD_LETTERED, NOON, Archive, archived, digest, digest_of, live

Row = dict[str, Any]
OUTCOMES = ("completed", "received", "expired", "purged", "cancelled")


def history(archive: Archive) -> Database:
    """Two queues with messages of every outcome: sealed, not yet sealed, and live."""
    archive.seal(1, [archived(n, outcome=OUTCOMES[n % 5]) for n in range(1, 21)])
    archive.seal(2, [archived(n, queue="billing", settled_at=NOON + DAY) for n in range(21, 41)])
    archive.add_to_queue(1, "orders", [live(41), live(42, state=DEAD_LETTERED), live(43, state=2)])
    return Database.from_url(archive.url)


@pytest.mark.usefixtures("compiled")
def test_in_an_intact_lake_accepted_is_the_sum_of_all_standings(
    spark: SparkSession, archive: Archive, lake: Lake
) -> None:
    database = history(archive)
    export(spark, database, lake)
    archive.seal(3, [archived(44)])
    archive.archive_rows([archived(45)])
    done = audit(spark, database, lake)
    assert (done.findings, done.unnamed, done.messages, done.batches) == ([], 0, 45, 2)
    assert [(line.queue, line.accepted, line.completed, line.received, line.live) for line in done.ledger] == [
        ("billing", 20, 20, 0, 0),
        ("orders", 25, 6, 4, 2),
    ]
    assert [line.dead_lettered for line in done.ledger] == [0, 1]


@pytest.mark.usefixtures("compiled")
@pytest.mark.nightly
def test_batches_of_older_and_of_newer_servers_are_exported_and_audited_alike(
    spark: SparkSession, archive: Archive, lake: Lake
) -> None:
    database = history(archive)
    archive.archive_rows([archived(44)])
    archive.write_as_older_servers()
    archive.seal(3, [archived(45), archived(46)])
    archive.archive_rows([archived(47)])
    assert export(spark, database, lake).messages == 42
    archive.seal(4, [archived(48)])
    done = audit(spark, database, lake)
    assert (done.findings, done.unnamed, done.messages, done.batches) == ([], 0, 48, 3)


FULL = {
    "queue": "billing.eu-1", "lock_token": bytes(range(16)), "receiver_id": "ü" * 128, "group_id": "a'b",
    "headers": '{"subject": "\U0001f680"}', "properties": '{ "n": 1}', "body": bytes(range(256)), "body_kind": 2,
    "expires_at": NOON + 1, "first_delivered_at": NOON - 2, "last_delivered_at": 0, "last_failure": "bo\nom",
    "dead_letter_reason": "poison", "dead_letter_description": "",
}  # fmt: skip


@pytest.mark.usefixtures("compiled")
def test_the_digests_are_those_that_the_server_seals_with(spark: SparkSession, archive: Archive, lake: Lake) -> None:
    numbers = [2, 3, 10, 11, 100, 2**40]
    rows = [*[archived(number) for number in numbers], archived(1, **FULL), archived(5, content_digest=None)]
    archive.seal(1, rows)
    database = Database.from_url(archive.url)
    export(spark, database, lake)
    kept = ArchiveRows.unchecked(spark, lake, lake.archive_table())
    stored = rows_of(spark, [(1, 2**40)], lambda first, last: map(located, database.rows(first, last)), LOCATED_ROWS)
    for frame in (kept.located(0, HIGHEST), stored):
        [row] = batches(frame, kept.events(0, HIGHEST)).collect()
        assert (row.number, row.messages, row.numbers) == (1, 8, digest(row["sequence_number"] for row in rows))
        assert (row.rows, row.changed) == (digest_of(rows), 0)
        assert frame.where("is_covered AND is_as_accepted").count() == 7


def test_rows_of_batches_are_without_others_of_the_same_file(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    small_archive.seal_all_with_events({number: [archived(number)] for number in range(1, 5)})
    rows = Database.from_url(small_archive.url).read(1, 4)
    assert lake.add_batches(
        list(write(rows, lake.directory(ARCHIVE), ARCHIVE)), ExportPosition(), ExportPosition(4, NOON + 4), 1
    )
    kept = ArchiveRows.unchecked(spark, lake, lake.archive_table())
    for found in (kept.located(1, 3), kept.events(1, 3), kept.between(1, 3)):
        assert sorted(row.sequence_number for row in found.collect()) == [2, 3]
    [file] = lake.archive_table().file_uris()
    rows = pq.ParquetFile(file).read()
    place, numbers = rows.schema.get_field_index("export_batch"), pa.array([1, 2, 3, None], pa.int64())
    pq.write_table(rows.set_column(place, "export_batch", numbers), file)
    assert sorted(row.sequence_number for row in kept.located(LOWEST, HIGHEST).collect()) == [1, 2, 3, 4]
    assert sorted(row.sequence_number for row in kept.located(1, HIGHEST).collect()) == [2, 3]


def test_an_audit_that_fails_leaves_nothing_in_memory(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    database = history(small_archive)
    export(spark, database, lake)
    file, *_ = map(Path, lake.archive_table().file_uris())
    whole, footer = file.read_bytes(), pq.read_metadata(file).serialized_size + 8
    file.write_bytes(bytes(len(whole) - footer) + whole[-footer:])
    earlier = set(spark.sparkContext._jsc.getPersistentRDDs())
    with pytest.raises(LakeUnavailable, match=file.name):
        audit(spark, database, lake)
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= earlier
    file.write_bytes(whole)
    assert audit(spark, database, lake).findings == []


def test_a_message_that_the_lake_lost_is_named(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    database = history(small_archive)
    export(spark, database, lake)
    rewrite(lake, lambda row: row["sequence_number"] != 7)
    done = audit(spark, database, lake)
    assert done.findings == [
        Finding("has 19 messages in the lake, but was sealed with 20", 1),
        Finding("is not in the lake", 1, "orders", 7, "id-7"),
        Finding("23 accepted, 1 missing", queue="orders", day=date(2026, 9, 21)),
    ]


@pytest.mark.nightly
def test_a_batch_that_the_database_forgot_is_still_known_to_lack_a_message(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = history(small_archive)
    export(spark, database, lake)
    small_archive.remove(1, "trimmed")
    assert audit(spark, database, lake).findings == []
    rewrite(lake, lambda row: row["sequence_number"] != 7)
    assert audit(spark, database, lake, options=FROM_SCRATCH).findings == [
        Finding("has 19 messages in the lake, but was sealed with 20", 1),
        Finding("23 accepted, 1 missing", queue="orders", day=date(2026, 9, 21)),
    ]


def test_a_message_that_is_in_the_lake_twice_is_named(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    database = history(small_archive)
    export(spark, database, lake)
    twice = database.read(1, 1).filter(pc.equal(database.read(1, 1)["sequence_number"], 5))
    lake.append(ARCHIVE, list(write(twice, lake.directory(ARCHIVE), ARCHIVE)))
    done = audit(spark, database, lake)
    assert done.findings == [
        Finding("occurs 2 times: completed", None, "orders", 5, "id-5"),
        Finding("has 21 messages in the lake, but was sealed with 20", 1),
    ]
    assert [line.surplus for line in done.ledger] == [0, 1]


def test_a_message_that_ended_and_is_still_in_its_queue_is_named(
    spark: SparkSession, archive: Archive, lake: Lake
) -> None:
    database = history(archive)
    export(spark, database, lake)
    archive.fill("message", [live(3)])
    assert audit(spark, database, lake).findings == [
        Finding("occurs 2 times: live and purged", None, "orders", 3, "id-3"),
        Finding("22 accepted, 1 more found", queue="orders", day=date(2026, 9, 21)),
    ]


def test_a_batch_that_expired_before_it_was_exported_is_named(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = history(small_archive)
    export(spark, database, lake)
    small_archive.seal(3, [archived(50)])
    small_archive.remove(3, "expired")
    small_archive.seal(4, [archived(51)])
    export(spark, database, lake)
    finding = Finding("was removed from the archive with 1 message before an export copied it", 3, is_unexported=True)
    assert audit(spark, database, lake).findings == [finding]
    execute(small_archive.url, "DELETE FROM export_batch WHERE number = 3")  # as a year later
    assert audit(spark, database, lake).findings == [finding]


@pytest.mark.nightly
def test_a_batch_removed_before_the_next_export_is_named_by_an_audit(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = history(small_archive)
    export(spark, database, lake)
    small_archive.seal(3, [archived(50)])
    small_archive.remove(3, "expired")
    finding = Finding("was removed from the archive with 1 message before an export copied it", 3, is_unexported=True)
    assert audit(spark, database, lake).findings == [finding]


def test_only_a_batch_that_the_lake_can_never_have_leaves_an_audit_sound() -> None:
    unexported = Finding("was removed before an export copied it", 2, is_unexported=True)
    assert not is_wrong([([unexported], 0)], exported=3)
    assert is_wrong([([unexported, Finding("has other messages", 2)], 0)], exported=3)
    assert is_wrong([([Finding(unexported.what, 2)], 0)], exported=3)
    assert is_wrong([([unexported], 1)], exported=3)
    assert not is_wrong([([Finding("has other messages", 4)], 0)], exported=3)


def test_a_batch_that_both_have_and_the_database_has_forgotten_is_one_finding() -> None:
    lake, archive = BatchContents(20, "1", "a"), BatchContents(19, "2", "b")
    sealed = {3: Batch(3, 1, "c", 0, None, 2)}
    places = {("lake", 2): lake, ("archive", 2): archive, ("lake", 3): BatchContents(1, "3", "c")}
    contents = {**places, ("archive", 3): places["lake", 3], ("lake", 1): lake, ("archive", 4): archive}
    compared = BatchComparison([*sealed.values()], sealed, 1, 1, 3, contents, {}, {})
    what = "has no record in the database; the lake has 20 messages of it, the archive 19 messages"
    assert list(compared.without_record()) == [Finding(what, 2)]
    assert [finding.batch for finding in compared.wrong_in_lake()] == [1]  # which the lake alone has
    assert [finding.batch for finding in compared.wrong_in_archive()] == [4]  # which was not exported


def test_a_replaced_message_is_found_by_the_digest(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    database = history(small_archive)
    export(spark, database, lake)
    rewrite(lake, lambda row: True, lambda row: row | {"sequence_number": row["sequence_number"] % 7 or 700})
    assert Finding("has 20 messages in the lake other than those sealed", 2) in audit(spark, database, lake).findings


def test_messages_removed_by_the_lakes_retention_are_not_lost(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = history(small_archive)
    export(spark, database, lake)
    assert retention(spark, lake, date(2026, 9, 22)).messages == 20
    done = audit(spark, database, lake)
    assert (done.findings, done.messages) == ([], 23)
    assert done.sentences().endswith(" + 20 removed by the lake's retention; 23 were found.")
    assert "43 accepted = 2 live + 1 dead-lettered" in done.sentences()


CLICKS = [archived(n, queue="clicks", queue_id=7) for n in range(100, 126)]


def test_messages_of_a_queue_without_an_archive_are_counted_and_not_called_lost(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database, log = history(small_archive), tmp_path / "sent.jsonl"
    export(spark, database, lake)
    small_archive.end_without_a_row(CLICKS)
    ids = [f"id-{number}" for number in (*range(1, 44), *range(100, 126))]
    log.write_text("".join(json.dumps(name) + "\n" for name in ids))
    done = audit(spark, database, lake, log)
    assert (done.findings, done.messages, done.expected, done.unknown) == ([], 43, 69, 26)
    unknown, _, equation = done.sentences().rpartition("\n")
    assert unknown == (
        "26 messages of the log were not found, and it is unknown whether they are lost: "
        "they may be among those of which only the number is known."
    )
    assert equation.startswith("No message is lost or duplicated: 69 accepted = 2 live + 1 dead-lettered + ")
    assert equation.endswith(" + 26 of queues without an archive; 43 were found.")
    log.write_text(log.read_text() + '"lost"\n')
    done = audit(spark, database, lake, log)
    what = "was sent, but is missing; it may be one of 26 messages of which only the number is known"
    assert Finding(what, message_id="lost") in done.findings
    assert (len(done.findings), done.unknown) == (27, 0)


def test_a_sent_message_that_is_missing_is_named(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database = history(small_archive)
    export(spark, database, lake)
    log = tmp_path / "sent.jsonl"
    sent = ['"id-1"', '{"message_id": "id-30", "queue": "billing"}', '"id-42"', "", json.dumps('lo"st\u00fc')]
    log.write_text("\n".join(sent) + "\n", encoding="utf-8")
    done = audit(spark, database, lake, log)
    assert done.findings == [Finding("was sent, but is missing", message_id='lo"st\u00fc')]
    assert done.expected == 4
    log.write_text("id-1\n")
    with pytest.raises(BadOption, match="a line that names no message: id-1"):
        audit(spark, database, lake, log)


# ---- where the lake begins and ends ----------------------------------------------------------------------------------


def test_a_lake_without_messages_is_compared_from_its_first_batch(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = history(small_archive)
    export(spark, database, lake)
    lake.archive_table().delete()
    small_archive.remove(1, "trimmed")
    done = audit(spark, database, lake)
    assert done.findings[:2] == [
        Finding("has 0 messages in the lake, but was sealed with 20", 1),
        Finding("has 0 messages in the lake, but was sealed with 20", 2),
    ]
    assert [(finding.what, finding.sequence_number) for finding in done.findings[2:] if finding.day is None] == [
        ("is not in the lake", number) for number in range(21, 41)
    ]
    assert {finding.day for finding in done.findings if finding.day} == {date(2026, 9, 21)}


@pytest.mark.nightly
def test_a_lake_begins_with_the_first_batch_whose_messages_were_there(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = history(small_archive)
    small_archive.remove(1, "expired")
    assert export(spark, database, lake).missed == 20
    assert lake.first_batch() == FirstBatch(2, noted=True)
    assert audit(spark, database, lake).findings == []


@pytest.mark.nightly
def test_a_lake_without_a_record_gets_its_first_batch_from_its_first_commit(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = history(small_archive)
    small_archive.seal(3, [archived(50)])
    for first, last in ((1, 2), (3, 3)):
        files = list(write(database.read(first, last), lake.directory(ARCHIVE), ARCHIVE))
        mark = (Transaction(LAST_BATCH_KEY, last), Transaction(SEALED_AT_KEY, NOON + last))
        assert commit(lake.directory(ARCHIVE), lake.table(ARCHIVE), ARCHIVE, Change(files), mark)
    lake.archive_table().delete("queue = 'orders'")
    assert lake.first_batch() == FirstBatch(1, noted=False)
    small_archive.remove(1, "trimmed")
    done = audit(spark, database, lake)
    assert Finding("has 0 messages in the lake, but was sealed with 20", 1) in done.findings
    assert "does not record its first batch: batches below 1 are not compared" in done.sentences()
    small_archive.seal(4, [archived(51)])
    export(spark, database, lake)
    assert lake.first_batch() == FirstBatch(1, noted=True)


# ---- what was lost from the archive, and what no server put there ----------------------------------------------------


def test_a_file_that_is_missing_or_cannot_be_read_is_named_with_its_messages(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = history(small_archive)
    export(spark, database, lake)
    gone, torn = sorted(Path(file) for file in lake.archive_table().file_uris())
    gone.unlink()
    torn.write_bytes(torn.read_bytes()[:-20])
    done = audit(spark, database, lake)
    what = "is missing from the lake or cannot be read; it held 20 messages"
    names = [str(file.relative_to(str(lake.directory(ARCHIVE)))) for file in (gone, torn)]
    assert [(finding.file, finding.what) for finding in done.findings[:2]] == [(name, what) for name in names]
    assert [(finding.batch, finding.what) for finding in done.findings[2:4]] == [
        (number, "has 0 messages in the lake, but was sealed with 20") for number in (1, 2)
    ]
    assert [finding.sequence_number for finding in done.findings[4:] if finding.day is None] == list(range(1, 41))
    with pytest.raises(BadLake, match="is missing from the lake or cannot be read; it held 20 messages"):
        lake.read(spark)


def test_a_file_that_was_replaced_by_one_of_another_size_is_named_with_its_message(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = history(small_archive)
    export(spark, database, lake)
    [first, _] = files_of(lake.archive_table())
    size = replace_file(lake, first, lambda row: row | {"priority": 9} if row["sequence_number"] == 7 else row)
    what = f"was replaced: it has 20 messages in {size} bytes, and the log of its table has 20 messages in {first.size} bytes"
    assert audit(spark, database, lake).findings == [
        Finding(what, file=first.path),
        Finding("has 20 messages in the lake other than those sealed", 1),
        Finding("is not in the lake as it was sealed: lake and archive differ in priority", 1, "orders", 7, "id-7"),
    ]
    with pytest.raises(BadLake, match=f"{first.path} was replaced"):
        copy(spark, lake, Lake(f"{lake.root}-copy"))


EDITED = "is not in the lake as it was exported: its values do not match its row_checksum"


def test_the_same_edit_in_lake_and_archive_names_the_message(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = edited_everywhere(spark, small_archive, lake)
    done = audit(spark, database, lake)
    assert [(finding.batch, finding.message_id, finding.what) for finding in done.findings] == [
        *((1, "id-7", f"does not have the content that was accepted, in the {place}") for place in ("archive", "lake")),
        *(
            (n, None, f"has 20 messages in the {place} other than those sealed")
            for place in ("lake", "archive")
            for n in (1, 2)
        ),
        (2, "id-30", EDITED),
    ]


def edited_everywhere(spark: SparkSession, small_archive: Archive, lake: Lake) -> Database:
    """Export messages, and edit the body of message 7 and the priority of message 30 in the lake and in the archive."""
    database = history(small_archive)
    export(spark, database, lake)
    edits: dict[int, Row] = {7: {"body": b"other"}, 30: {"priority": 9}}
    rewrite(lake, lambda _: True, lambda row: row | edits.get(row["sequence_number"], {}))
    execute(small_archive.url, "UPDATE archive SET body = x'6f74686572' WHERE sequence_number = 7")
    execute(small_archive.url, "UPDATE archive SET priority = 9 WHERE sequence_number = 30")
    return database


def test_an_edit_of_a_row_without_a_checksum_names_the_batch_alone(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = edited_everywhere(spark, small_archive, lake)
    rewrite(lake, lambda _: True, lambda row: row | {"row_checksum": None})
    assert [finding.message_id for finding in audit(spark, database, lake).findings if finding.batch == 2] == [
        None,
        None,
    ]


def compacted(spark: SparkSession, lake: Lake) -> Lake:
    assert compact(spark, lake).files_before == 3
    return lake


def copied(spark: SparkSession, lake: Lake) -> Lake:
    other = Lake(f"{lake.root}-copy")
    copy(spark, lake, other)
    return other


def without_orders(spark: SparkSession, lake: Lake) -> Lake:
    assert retention(spark, lake, date(2026, 9, 23), ["orders"]).messages == 21
    return lake


@pytest.mark.parametrize("rewritten", [compacted, copied, without_orders])
def test_an_edit_in_a_trimmed_batch_is_named_after_a_job_has_rewritten_its_file(
    spark: SparkSession, small_archive: Archive, lake: Lake, rewritten: Callable[[SparkSession, Lake], Lake]
) -> None:
    database = edited_everywhere(spark, small_archive, lake)
    small_archive.seal(3, [archived(50, settled_at=NOON + DAY)])
    export(spark, database, lake)
    small_archive.remove(2, "trimmed")
    assert Finding(EDITED, 2, "billing", 30, "id-30") in audit(spark, database, rewritten(spark, lake)).findings


def replace_file(lake: Lake, file: DataFile, change: Callable[[Row], Row]) -> int:
    """Write other rows into a file of the lake, as no job does, and return its size; the table's log stays unchanged."""
    place = Path(f"{lake.directory(ARCHIVE)}/{file.path}")
    table = pq.ParquetFile(place).read()
    pq.write_table(pa.Table.from_pylist([change(row) for row in table.to_pylist()], schema=table.schema), place)
    return place.stat().st_size


def test_messages_that_only_the_lake_or_only_the_archive_has_are_named(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = history(small_archive)
    small_archive.seal(3, [archived(number) for number in (50, 51)])
    export(spark, database, lake)
    small_archive.seal(4, [archived(60), archived(61)])
    small_archive.delete_message(60)
    small_archive.delete_message(30)
    small_archive.fill_archive([archived(70) | {"export_batch": 3}, archived(71) | {"export_batch": 9}])
    phantoms = [row | {"sequence_number": 900 + row["sequence_number"]} for row in database.read(1, 1).to_pylist()[:1]]
    phantoms += [phantoms[0] | {"sequence_number": 990 + n, "export_batch": n} for n in (-8, 8)]
    rows = pa.Table.from_pylist(phantoms, schema=ARCHIVE.schema)
    lake.append(ARCHIVE, list(write(rows, lake.directory(ARCHIVE), ARCHIVE)))
    done = audit(spark, database, lake)
    assert [
        (finding.batch, finding.what) for finding in done.findings if finding.message_id is None and finding.day is None
    ] == [
        (-8, "has 1 message in the lake, which begins with batch 1"),
        (1, "has 21 messages in the lake, but was sealed with 20"),
        (8, "has 1 message in the lake, which ends with batch 3"),
        (2, "has 19 messages in the archive, but was sealed with 20"),
        (3, "has 3 messages in the archive, but was sealed with 2"),
        (4, "has 1 message in the archive, but was sealed with 2"),
        (9, "has 1 message in the archive, but was never sealed"),
    ]
    assert [(finding.sequence_number, finding.what) for finding in done.findings if finding.message_id is not None] == [
        (30, "is not in the archive"),
        (70, "is in the archive, but was not sealed in this batch"),
        (71, "is in the archive, but was not sealed in this batch"),
        (phantoms[0]["sequence_number"], "is in the lake, but was not sealed in this batch"),
        (982, "is in the lake, but was not sealed in this batch"),
        (998, "is in the lake, but was not sealed in this batch"),
    ]


def rewrite(lake: Lake, keep: Callable[[Row], bool], change: Callable[[Row], Row] = lambda row: row) -> None:
    """Commit other rows of the lake's files, as no job does."""
    table = lake.archive_table()
    rows = [change(row) for row in read_rows(table) if keep(row)]
    files = list(write(pa.Table.from_pylist(rows, schema=ARCHIVE.schema), lake.directory(ARCHIVE), ARCHIVE))
    assert commit(lake.directory(ARCHIVE), table, ARCHIVE, Change(files, mode="overwrite"))


@pytest.mark.parametrize("gone", [1, 2])
def test_a_batch_without_a_record_is_one_finding(
    spark: SparkSession, small_archive: Archive, lake: Lake, gone: int
) -> None:
    database = history(small_archive)
    small_archive.seal(3, [archived(50)])
    export(spark, database, lake)
    execute(small_archive.url, "DELETE FROM export_batch WHERE number = :gone", gone=gone)
    what = "has no record in the database; the lake has 20 messages of it, the archive 20 messages"
    assert audit(spark, database, lake).findings == [Finding(what, gone)]
    small_archive.delete_message(gone * 20)
    differing = Finding(
        "is in the lake, but not in the archive", gone, ("orders", "billing")[gone - 1], gone * 20, f"id-{gone * 20}"
    )
    assert audit(spark, database, lake).findings == [Finding(what.replace("archive 20", "archive 19"), gone), differing]


def read_rows(table: DeltaTable) -> list[Row]:
    return pa.table(table.to_pyarrow_dataset().to_table()).select(ARCHIVE.schema.names).to_pylist()
