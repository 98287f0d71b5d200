"""The history of a message goes into the lake with the message, in the same commit, and is proven with it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Transaction
from peeklock_pipeline import source
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import write
from peeklock_pipeline.first_batch import LAST_BATCH_KEY
from peeklock_pipeline.histories import MAX_EVENTS, ranges_of_events, with_histories, without_history
from peeklock_pipeline.jobs.audit import audit
from peeklock_pipeline.jobs.compact import compact
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.findings import Finding
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.table_specs import ARCHIVE, HISTORY, MESSAGE_COLUMNS, TableSpec
from peeklock_pipeline.table_specs import EVENTS as EVENTS_TABLE
from peeklock_pipeline.tables import DESCRIPTION_PREFIX, SEALED_AT_KEY, Change, ExportPosition, commit
from pyspark.sql import SparkSession

from tests.faults.database_access import execute
from tests.pipeline.archive import NOON, Archive, archived, happened

EVENTS = [
    happened(5, 2, "sent", state=3),
    happened(6, 1, "sent", state=1),
    happened(7, 1, "delivered", state=2, receiver_id="w\u00fcrk'er", delivery_count=1),
    happened(8, 2, "due", state=1),
    happened(
        9, 1, "settled", outcome="abandoned", state=1, receiver_id="", delivery_count=1, reason="bo\nom \U0001f680"
    ),
    happened(2**40, 1, "purged", outcome="purged"),
]
"""What happened to messages 1 and 2, in the order of the database."""


def as_in_lake(event: dict[str, Any]) -> dict[str, Any]:
    states = (None, "available", "locked", "scheduled")
    moment = datetime.fromtimestamp(event["happened_at"] / 1e6, UTC)
    named = {name: event[name] for name in ("event", "outcome", "receiver_id", "reason", "delivery_count")}
    return {"number": event["id"], "at": moment, **named, "state": states[event["state"] or 0]}


def histories() -> dict[int, Any]:
    """The histories of messages 1 to 3, as the lake has them."""
    found = {number: [as_in_lake(event) for event in EVENTS if event["sequence_number"] == number] for number in (1, 2)}
    return found | {3: None}


def sealed(archive: Archive) -> Database:
    """A batch with three messages, of which two have a history, and one without histories."""
    archive.seal_with_events(1, [archived(3), archived(1), archived(2)], EVENTS)
    archive.seal(2, [archived(4)])
    archive.fill("message_event", [happened(1, 5, "sent", state=1)])  # its message is in a queue
    return Database.from_url(archive.url)


def test_a_message_is_read_with_its_events_in_order(archive: Archive) -> None:
    rows = sealed(archive).read(1, 2)
    assert rows.schema.equals(ARCHIVE.with_columns(*MESSAGE_COLUMNS).schema)
    found = {row["sequence_number"]: row[HISTORY] for row in rows.to_pylist()}
    assert found == histories() | {4: None}


def test_each_of_many_messages_is_read_with_its_own_events(archive: Archive) -> None:
    numbers = {1: range(1, 3000), 2: range(5000, 5002), 3: range(4000, 4003), 4: range(9000, 9900)}
    archive.seal_all_with_events({batch: [archived(number) for number in some] for batch, some in numbers.items()})
    rows = Database.from_url(archive.url).read(1, 4).to_pylist()
    assert sorted(row["sequence_number"] for row in rows) == sorted(
        number for some in numbers.values() for number in some
    )
    own = [event["number"] for row in rows for event in row[HISTORY]]
    assert own == [row["sequence_number"] for row in rows]


def test_messages_hold_the_events_of_any_order_and_number_of_chunks() -> None:
    numbers = [3, 1, 2, 3, 1, 3]
    pieces = [event_table(place, number) for place, number in enumerate(numbers)]
    messages = pa.table({"sequence_number": pa.chunked_array([[4], [3, 2], [1]], pa.int64())})
    found = with_histories(messages, pa.concat_tables(pieces))[HISTORY].to_pylist()
    assert [events and [event["number"] for event in events] for events in found] == [None, [0, 3, 5], [2], [1, 4]]
    assert with_histories(messages, pieces[0].slice(1))[HISTORY].to_pylist() == [None] * 4


def event_table(number: int, sequence_number: int) -> pa.Table:
    """An event of a message, as it is read."""
    given = {"sequence_number": sequence_number, "number": number, "at": NOON, "event": "sent", "export_batch": 1}
    return pa.Table.from_pylist([dict.fromkeys(EVENTS_TABLE.schema.names) | given], schema=EVENTS_TABLE.schema)


def test_events_are_read_in_ranges_of_batches_that_fit_into_memory() -> None:
    assert ranges_of_events(1, 9, []) == [(1, 9)]
    most = MAX_EVENTS
    assert ranges_of_events(1, 9, [(2, most - 1), (5, 1), (6, 1), (8, most + 5), (9, 1)]) == [
        (1, 5), (6, 7), (8, 8), (9, 9),
    ]  # fmt: skip
    assert ranges_of_events(4, 4, [(4, 3 * most)]) == [(4, 4)]


def test_a_batch_of_many_events_is_read_apart_from_others(small_archive: Archive) -> None:
    small_archive.seal_with_events(1, [archived(1)], [happened(number, 1, "sent") for number in range(1, MAX_EVENTS)])
    small_archive.seal_with_events(2, [archived(2)], [happened(MAX_EVENTS + number, 2, "due") for number in range(2)])
    small_archive.seal(3, [archived(3)])
    chunks = list(Database.from_url(small_archive.url).chunks(1, 3))
    assert [number for chunk in chunks for number in chunk["sequence_number"].to_pylist()] == [1, 2, 3]
    lengths = [len(events or ()) for chunk in chunks for events in chunk[HISTORY].to_pylist()]
    assert lengths == [MAX_EVENTS - 1, 2, 0]


@pytest.mark.usefixtures("compiled")
def test_exported_histories_are_those_that_were_sealed(spark: SparkSession, archive: Archive, lake: Lake) -> None:
    database = sealed(archive)
    assert export(spark, database, lake).messages == 4
    rows = lake.read(spark).select("sequence_number", HISTORY).toArrow().to_pylist()
    assert {row["sequence_number"]: row[HISTORY] for row in rows} == histories() | {4: None}
    assert audit(spark, database, lake).findings == []
    events = lake.read(spark).selectExpr("queue", f"inline({HISTORY})").where("event = 'delivered'").collect()
    assert [(row.queue, row.receiver_id) for row in events] == [("orders", "w\u00fcrk'er")]


@pytest.mark.parametrize("change", ["reason = 'other'", "id = 10"])
def test_a_history_that_changed_in_the_archive_is_named(
    spark: SparkSession, small_archive: Archive, lake: Lake, change: str
) -> None:
    database = sealed(small_archive)
    export(spark, database, lake)
    execute(small_archive.url, f"UPDATE message_event SET {change} WHERE id = 9")
    assert audit(spark, database, lake).findings == [
        Finding("has 3 messages in the archive other than those sealed", 1),
        Finding("is not in the archive as it was sealed: lake and archive differ in history", 1, "orders", 1, "id-1"),
    ]


def test_a_history_that_the_lake_lost_is_named(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    database = sealed(small_archive)
    after = ExportPosition(1, NOON + 1)
    rows = database.read(1, 1)
    lost = rows.set_column(
        rows.schema.get_field_index(HISTORY), ARCHIVE.schema.field(HISTORY), pa.nulls(3, rows[HISTORY].type)
    )
    files = list(write(lost, lake.directory(ARCHIVE), ARCHIVE))
    assert lake.add_batches(files, ExportPosition(), after, 1)
    assert [str(finding) for finding in audit(spark, database, lake).findings] == [
        "Batch 1 has 3 messages in the lake other than those sealed.",
        *(
            f"Message id-{number} (sequence number {number}, queue orders) is not in the lake as it was sealed: "
            "lake and archive differ in history."
            for number in (1, 2)
        ),
    ]


def test_a_history_that_was_not_sealed_is_named(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    database = sealed(small_archive)
    rows = database.read(2, 2)
    added = pa.array([[as_in_lake(EVENTS[0])]], rows[HISTORY].type)
    planted = rows.set_column(rows.schema.get_field_index(HISTORY), ARCHIVE.schema.field(HISTORY), added)
    files = list(write(pa.concat_tables([database.read(1, 1), planted]), lake.directory(ARCHIVE), ARCHIVE))
    assert lake.add_batches(files, ExportPosition(), ExportPosition(2, NOON + 2), 1)
    assert "Batch 2 has 1 message in the lake other than those sealed." in audit(spark, database, lake).sentences()


def test_a_batch_removed_between_its_events_and_its_messages_is_missed_as_a_whole(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    database = sealed(small_archive)

    class Late(Database):
        """Loses a batch after its events were read."""

        __slots__ = ()

        def _sealed_messages(self, *within: Any) -> Iterator[pa.Table]:
            small_archive.remove(1, "expired")
            execute(small_archive.url, "DELETE FROM message_event")
            return super()._sealed_messages(*within)

    done = export(spark, Late(database.url, database.engine), lake)
    assert (done.messages, done.missed) == (1, 3)
    assert [row.sequence_number for row in lake.read(spark).collect()] == [4]


@pytest.mark.nightly
def test_a_lake_of_the_previous_format_gets_histories_with_its_next_export(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    small_archive.seal(1, [archived(8)])
    database = Database.from_url(small_archive.url)
    older = TableSpec("archive", ARCHIVE.with_columns(*without_history(MESSAGE_COLUMNS)).schema, ARCHIVE.partitions)
    files = list(write(database.read(1, 1).drop_columns(HISTORY), lake.directory(ARCHIVE), older))
    ended = (Transaction(LAST_BATCH_KEY, 1), Transaction(SEALED_AT_KEY, NOON + 1))
    assert commit(lake.directory(ARCHIVE), None, older, Change(files), ended)
    lake.record_opening([])
    DeltaTable(str(lake.directory(ARCHIVE))).alter.set_table_description(f"{DESCRIPTION_PREFIX}2")
    assert audit(spark, database, lake).findings == []
    small_archive.seal_with_events(2, [archived(1), archived(2), archived(3)], EVENTS)
    assert export(spark, database, lake).messages == 3
    rows = lake.read(spark).select("sequence_number", HISTORY).toArrow().to_pylist()
    assert {row["sequence_number"]: row[HISTORY] for row in rows} == histories() | {8: None}
    assert audit(spark, database, lake).findings == []


@pytest.mark.nightly
def test_compaction_keeps_histories(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    database = sealed(small_archive)
    export(spark, database, lake)
    small_archive.seal_with_events(3, [archived(6)], [happened(10, 6, "sent", state=1)])
    export(spark, database, lake)
    before = lake.read(spark).orderBy("sequence_number").collect()
    assert compact(spark, lake).files == 1
    assert lake.read(spark).orderBy("sequence_number").collect() == before
    assert audit(spark, database, lake).findings == []


def test_the_data_source_reads_histories_by_name(spark: SparkSession, small_archive: Archive) -> None:
    sealed(small_archive)
    source.register(spark)
    reader = spark.read.format("peeklock").option("databaseUrl", small_archive.url)
    assert HISTORY not in reader.load().columns
    rows = reader.option("columns", f"{HISTORY},message_id").load().orderBy("message_id").toArrow().to_pylist()
    assert [row[HISTORY] for row in rows] == [*histories().values(), None]
