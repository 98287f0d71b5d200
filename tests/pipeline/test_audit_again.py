"""A later audit reads what no audit has found sound, counts all, and records what it has found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import Transaction
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import write
from peeklock_pipeline.jobs.audit import FROM_SCRATCH, AuditOptions, AuditResult, audit
from peeklock_pipeline.jobs.compact import compact
from peeklock_pipeline.jobs.copy import copy
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.findings import Finding
from peeklock_pipeline.jobs.retention import retention
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.refusals import LakeUnavailable
from peeklock_pipeline.table_specs import ARCHIVE, AUDITED, TableSpec
from peeklock_pipeline.tables import Change
from pyspark.sql import SparkSession

from tests.faults.database_access import execute
from tests.pipeline.archive import DAY, NOON, Archive, archived, live
from tests.pipeline.counting_lake import CountingLake

MONDAY, TUESDAY = date(2026, 9, 21), date(2026, 9, 22)
OUTCOMES = ("completed", "received", "expired", "purged", "cancelled")


class Killed(BaseException):
    """The job ends at once."""


def exported(spark: SparkSession, archive: Archive, lake: Lake, batches: Sequence[int]) -> Database:
    """Export batches of five messages of two queues, each with every outcome; each batch ends on a day of its own."""
    for batch in batches:
        rows = [
            archived(
                batch * 100 + n, outcome=outcome, settled_at=NOON + batch * DAY, queue_id=1 + n % 2,
                queue=("orders", "billing")[n % 2], enqueued_at=NOON + batch * DAY - 2_000_000,
            )
            for n, outcome in enumerate(OUTCOMES)
        ]  # fmt: skip
        archive.seal(batch, rows)
    database = Database.from_url(archive.url)
    export(spark, database, lake)
    return database


def audited(spark: SparkSession, archive: Archive, lake: Lake, batches: Sequence[int]) -> Database:
    """Export batches as above, and audit them."""
    database = exported(spark, archive, lake, batches)
    done = audit(spark, database, lake)
    assert (done.findings, done.notes.recorded) == ([], True)
    return database


def from_scratch(spark: SparkSession, database: Database, lake: Lake) -> AuditResult:
    return audit(spark, database, lake, options=FROM_SCRATCH)


def test_an_audit_reads_only_new_batches_and_counts_all(spark: SparkSession, archive: Archive, lake: Lake) -> None:
    database = audited(spark, archive, lake, [1, 2])
    archive.add_to_queue(1, "orders", [live(900)])
    counting = CountingLake(lake)
    assert audit(spark, database, counting).messages == 11
    assert counting.reads == []

    exported(spark, archive, lake, [3])
    archive.remove(1, "trimmed")
    done = audit(spark, database, counting)
    assert set(counting.files_read()) == {1}
    assert (done.findings, done.batches, done.messages, done.notes.audited) == ([], 1, 16, 2)
    assert "Batches up to 2 were found sound earlier, and are counted but not read again" in done.sentences()

    counting.reads.clear()
    again = from_scratch(spark, database, counting)
    assert set(counting.files_read()) == {3}
    assert (again.findings, again.batches, again.notes.audited) == ([], 3, 0)
    assert again.ledger == done.ledger == audit(spark, database, lake).ledger


@pytest.mark.nightly
def test_faults_in_new_batches_are_named_until_they_are_gone(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = audited(spark, small_archive, lake, [1])
    before = lake.archive_table().version()
    exported(spark, small_archive, lake, [2, 3])
    twice = database.read(3, 3).slice(0, 1)
    lake.append(ARCHIVE, list(write(twice, lake.directory(ARCHIVE), ARCHIVE)))
    number = twice["sequence_number"][0].as_py()
    for _ in range(2):
        done = audit(spark, database, lake)
        assert Finding("has 6 messages in the lake, but was sealed with 5", 3) in done.findings
        assert [finding.sequence_number for finding in done.findings if finding.batch is None] == [number]
        assert (done.notes.audited, done.notes.recorded) == (1, False)
    lake.archive_table().restore(before + 1)
    assert audit(spark, database, lake).notes.recorded
    assert audit(spark, database, lake).notes.audited == 3


@pytest.mark.nightly
def test_a_batch_that_was_never_sealed_is_named_after_an_audited_one(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = audited(spark, small_archive, lake, [1, 2])
    exported(spark, small_archive, lake, [4])
    phantom = database.read(4, 4).slice(0, 1)
    place = phantom.column_names.index("export_batch")
    phantom = phantom.set_column(place, phantom.schema.field(place), pa.array([3], pa.int64()))
    lake.append(ARCHIVE, list(write(phantom, lake.directory(ARCHIVE), ARCHIVE)))
    done = audit(spark, database, lake)
    assert (done.notes.audited, done.notes.recorded) == (2, False)
    assert Finding("has 1 message in the lake, but was never sealed", 3) in done.findings


@pytest.mark.nightly
def test_a_batch_that_was_removed_before_an_export_is_named_by_each_audit(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = audited(spark, small_archive, lake, [1])
    small_archive.seal(2, [archived(200)])
    small_archive.remove(2, "expired")
    exported(spark, small_archive, lake, [3])
    finding = Finding("was removed from the archive with 1 message before an export copied it", 2, is_unexported=True)
    for known in (1, 3):
        done = audit(spark, database, lake)
        assert (done.findings, done.notes.audited, done.notes.recorded) == ([finding], known, True)


@pytest.mark.nightly
def test_faults_in_queues_are_named_by_each_audit_and_batches_are_recorded(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = audited(spark, small_archive, lake, [1])
    small_archive.add_to_queue(1, "orders", [live(900), live(901)])
    execute(small_archive.url, "UPDATE message SET body = 'other' WHERE sequence_number = 900")
    execute(small_archive.url, "DELETE FROM message WHERE sequence_number = 901")
    exported(spark, small_archive, lake, [2])
    for known in (1, 2):
        done = audit(spark, database, lake)
        assert done.notes.audited == known
        assert [(finding.sequence_number, finding.day) for finding in done.findings] == [(900, None), (None, MONDAY)]


# ---- what changes in the lake after an audit -------------------------------------------------------------------------


@pytest.mark.nightly
def test_what_the_lakes_retention_removes_after_an_audit_is_not_lost(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = audited(spark, small_archive, lake, [1, 2, 3])
    assert retention(spark, lake, date(2026, 9, 23)).messages == 5
    assert retention(spark, lake, date(2026, 9, 24), ["billing"]).messages == 2
    exported(spark, small_archive, lake, [4])
    later = [audit(spark, database, lake) for _ in range(2)]
    assert [(done.findings, done.notes.audited, done.messages) for done in later] == [([], 3, 13), ([], 4, 13)]
    assert from_scratch(spark, database, lake).ledger == later[0].ledger == later[1].ledger
    assert retention(spark, lake, date(2026, 9, 25)).messages == 8
    assert audit(spark, database, lake).ledger == from_scratch(spark, database, lake).ledger


@pytest.mark.nightly
def test_a_compaction_after_an_audit_moves_audited_messages_into_new_files(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = audited(spark, small_archive, lake, [1, 2])
    small_archive.seal(3, [archived(300, settled_at=NOON + 2 * DAY)])
    exported(spark, small_archive, lake, [])
    compact(spark, lake)
    done = audit(spark, database, lake)
    assert (done.findings, done.batches, done.messages) == ([], 1, 11)


@pytest.mark.nightly
def test_files_without_statistics_are_read_and_their_audited_messages_left_out(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = audited(spark, small_archive, lake, [1])
    old = [replace(file, statistics="") for file in write(database.read(1, 1), lake.directory(ARCHIVE), ARCHIVE)]
    lake.replace(ARCHIVE, old)
    exported(spark, small_archive, lake, [2])
    done = audit(spark, database, lake)
    assert (done.findings, done.batches, done.messages) == ([], 1, 10)


@pytest.mark.nightly
def test_audited_messages_that_vanish_or_come_are_counted_and_named_from_scratch(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = audited(spark, small_archive, lake, [1, 2])
    lake.archive_table().delete("sequence_number = 103")
    what = (
        "and earlier ones have 9 messages in the lake, but audits counted 10; an audit with --from-scratch names them"
    )
    done = audit(spark, database, lake)
    assert (done.findings, done.notes.recorded) == ([Finding(what, 2)], False)
    assert Finding("is not in the lake", 1, "billing", 103, "id-103") in from_scratch(spark, database, lake).findings
    assert audit(spark, database, lake).findings == [Finding(what, 2)]


def test_a_missing_file_of_audited_messages_is_named(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    database = audited(spark, small_archive, lake, [1, 2])
    Path(min(lake.archive_table().file_uris())).unlink()
    done = audit(spark, database, lake)
    assert [finding.what for finding in done.findings] == [
        "is missing from the lake or cannot be read; it held 5 messages"
    ]
    assert not done.notes.recorded


def changed_file(file: str) -> tuple[pa.Table, int]:
    """The rows of a file with another id of a message, and the bytes of the file."""
    table = pq.ParquetFile(file).read()
    changed = pc.if_else(pc.equal(table["sequence_number"], 103), "other", table["message_id"])
    place = table.column_names.index("message_id")
    return table.set_column(place, table.schema.field(place), changed), Path(file).stat().st_size


def test_an_audited_file_that_was_replaced_by_one_of_another_size_is_named(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = audited(spark, small_archive, lake, [1, 2])
    file, _ = sorted(lake.archive_table().file_uris())
    table, size = changed_file(file)
    pq.write_table(table, file)
    done = audit(spark, database, lake)
    [finding] = done.findings
    assert (finding.file, finding.batch) == (str(Path(file).relative_to(str(lake.directory(ARCHIVE)))), None)
    assert finding.what.endswith(f"and the log of its table has 5 messages in {size} bytes")
    assert not done.notes.recorded


@pytest.mark.nightly
def test_messages_changed_in_audited_batches_are_found_from_scratch_alone(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = audited(spark, small_archive, lake, [1])
    [file] = lake.archive_table().file_uris()
    table, size = changed_file(file)
    write_with_size(table, Path(file), size)
    execute(small_archive.url, "UPDATE archive SET body = 'other' WHERE sequence_number = 102")
    assert audit(spark, database, lake).findings == []
    assert {102, 103} <= {finding.sequence_number for finding in from_scratch(spark, database, lake).findings}


def write_with_size(table: pa.Table, file: Path, size: int) -> None:
    """Write rows to a file of this size. Without statistics it is smaller; octets that no reader visits fill it up."""
    pq.write_table(table, file, compression="zstd", write_statistics=False)
    written, footer = file.read_bytes(), pq.read_metadata(file).serialized_size + 8
    file.write_bytes(written[:-footer] + bytes(size - len(written)) + written[-footer:])
    assert file.stat().st_size == size


@pytest.mark.nightly
def test_a_message_of_an_audited_batch_in_a_queue_is_named_from_scratch(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = audited(spark, small_archive, lake, [1])
    small_archive.add_to_queue(1, "orders", [live(900)])
    small_archive.fill("message", [live(102, enqueued_at=NOON)])
    counted = Finding("1 accepted, 1 more found", queue="orders", day=MONDAY)
    assert audit(spark, database, lake).findings == [counted]
    named = Finding("occurs 2 times: expired and live", None, "orders", 102, "id-102")
    assert from_scratch(spark, database, lake).findings == [named, counted]


# ---- the record ------------------------------------------------------------------------------------------------------


class KilledLake(Lake):
    """A lake whose audit is killed at its commit, overtaken by another one, or denied to write."""

    def __init__(self, lake: Lake, moment: str) -> None:
        super().__init__(lake.root)
        self._moment = moment

    def commit_at_version(self, spec: TableSpec, change: Change, after: int, *transactions: Transaction) -> bool:
        if self._moment == "before":
            raise Killed
        if self._moment == "overtaken":
            assert self._commit(spec, self.table(spec), Change(), Transaction("other", 1))
        if self._moment == "read-only":
            raise LakeUnavailable("access denied")
        done = super().commit_at_version(spec, change, after, *transactions)
        if self._moment == "after":
            raise Killed
        return done


@pytest.mark.parametrize(("moment", "recorded"), [pytest.param("before", 1, marks=pytest.mark.nightly), ("after", 2)])
def test_an_audit_killed_at_its_commit_has_recorded_all_or_nothing(
    spark: SparkSession, small_archive: Archive, lake: Lake, moment: str, recorded: int
) -> None:
    database = audited(spark, small_archive, lake, [1])
    exported(spark, small_archive, lake, [2])
    with pytest.raises(Killed):
        audit(spark, database, KilledLake(lake, moment))
    done = audit(spark, database, lake)
    assert (done.findings, done.messages, done.notes.audited) == ([], 10, recorded)
    assert from_scratch(spark, database, lake).ledger == audit(spark, database, lake).ledger == done.ledger


@pytest.mark.parametrize(
    "moment", [pytest.param(name, marks=pytest.mark.nightly) for name in ("overtaken", "read-only")]
)
def test_an_audit_that_cannot_record_its_result_says_so(
    spark: SparkSession, small_archive: Archive, lake: Lake, moment: str
) -> None:
    database = audited(spark, small_archive, lake, [1])
    exported(spark, small_archive, lake, [2])
    done = audit(spark, database, KilledLake(lake, moment))
    assert (done.findings, done.notes.recorded) == ([], False)
    assert "This result could not be recorded in the lake" in done.sentences()
    assert audit(spark, database, lake).notes.audited == 1


@pytest.mark.nightly
def test_a_copy_and_an_earlier_version_of_the_archive_are_audited_from_scratch(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database = audited(spark, small_archive, lake, [1])
    target = Lake(tmp_path / "copy")
    copy(spark, lake, target)
    assert audit(spark, database, target).notes.audited == 0
    table = pa.table(lake.table(AUDITED).to_pyarrow_dataset().to_table())  # pyright: ignore
    assert sorted({(row["date"], row["settled_on"], row["messages"]) for row in table.to_pylist()}) == [
        (TUESDAY, TUESDAY, 1)
    ]


@pytest.mark.nightly
def test_a_senders_log_is_compared_with_audited_messages_as_well(
    spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    database = audited(spark, small_archive, lake, [1])
    exported(spark, small_archive, lake, [2])
    log = tmp_path / "sent.jsonl"
    log.write_text('"id-101"\n"id-203"\n"id-999"\n')
    done = audit(spark, database, lake, log)
    assert done.notes.audited == 1
    assert done.findings == [Finding("was sent, but is missing", message_id="id-999")]


# ---- portions --------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_batches_are_compared_in_portions_with_the_same_result(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = exported(spark, small_archive, lake, [1, 2, 4, 5, 6])
    small_archive.seal(7, [archived(700)])
    small_archive.delete_message(201)
    row = database.read(1, 1).slice(0, 1)
    for place, value in (("sequence_number", 900), ("export_batch", 3)):
        at = row.column_names.index(place)
        row = row.set_column(at, row.schema.field(at), pa.array([value], row.schema.field(at).type))
    lake.append(ARCHIVE, list(write(row, lake.directory(ARCHIVE), ARCHIVE)))
    lake.archive_table().delete("sequence_number = 503")
    whole = from_scratch(spark, database, lake)
    for most in (1, 2):
        parts = audit(spark, database, lake, options=AuditOptions(from_scratch=True, portion_batches=most))
        assert sorted(map(str, parts.findings)) == sorted(map(str, whole.findings))
        assert (parts.batches, parts.ledger) == (5, whole.ledger)
    assert Finding("has 1 message in the lake, but was never sealed", 3) in whole.findings
    assert Finding("is not in the lake", 5, "billing", 503, "id-503") in whole.findings
    assert Finding("is not in the archive", 2, "billing", 201, "id-201") in whole.findings
