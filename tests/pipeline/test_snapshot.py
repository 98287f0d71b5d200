"""A snapshot copies what is in the broker now into tables of the lake, in ranges of about as many rows each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from peeklock_pipeline.broker_tables import BROKER_TABLES, STATES
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import DataFile
from peeklock_pipeline.jobs.snapshot import MESSAGE_NUMBERS, even_ranges_of, ranges_from, snapshot
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.table_specs import MESSAGES, TableSpec
from peeklock_pipeline.transforms.groups import GROUPS
from pyspark.sql import SparkSession

from tests.pipeline.archive import DAY, DEAD_LETTERED, NOON, Archive, archived, happened, live

TAKEN_AT = datetime(2026, 9, 21, tzinfo=UTC)
CHANGES = {"version": 3, "created_at": NOON, "updated_at": NOON + 1}
BLOCKED = 7


def moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


CHANGED = {"version": 3, "created_at": moment(NOON), "updated_at": moment(NOON + 1), "taken_at": TAKEN_AT}


def fill(archive: Archive) -> None:
    """Fill every table that a snapshot reads."""
    archive.add_to_queue(
        7,
        "orders",
        [
            live(1, group_id="a", enqueued_at=NOON - 5),
            live(2, group_id="a", state=BLOCKED),
            live(3, group_id="b\u00fc", state=DEAD_LETTERED),
            live(9),
        ],
    )
    archive.fill("topic", [{"id": 5, "name": "news", "description": "it's \u00fc", **CHANGES}])
    subscription = {"set_properties": '{"a": 1}', "remove_properties": "[]", **CHANGES}
    archive.fill(
        "subscription",
        [
            {"id": 2, "topic_id": 5, "name": "all", "target_queue": "orders", "filter": None, **subscription},
            {
                "id": 4,
                "topic_id": 5,
                "name": "eu",
                "target_queue": "orders",
                "filter": "subject == 'eu'",
                **subscription,
            },
        ],
    )
    transaction = {
        "principal": "shop", "opened_at": NOON, "member_count": 2, "member_bytes": 4108, "answer": None, "member": None,
        "remove_at": None,
    }  # fmt: skip
    archive.fill(
        "message_transaction",
        [
            transaction | {"id": "t1", "state": 1, "expires_at": NOON + 9, "ended_at": None, "cause": None},
            transaction | {"id": "t2", "state": 3, "expires_at": NOON + 7, "ended_at": NOON + 8, "cause": "timeout"},
        ],
    )
    archive.fill(
        "state",
        [
            {"id": 1, "state_key": "game.17", "number": 2, "updated_at": NOON + 2},
            {"id": 2, "state_key": None, "number": 1, "updated_at": NOON},
        ],
    )
    version = {"state_id": 1, "metadata": b"null", "result_digest": bytes(32), "receipts": "[]", "replaced_at": None}
    archive.fill(
        "state_version",
        [
            version | {"id": 1, "number": 1, "message_id": None, "value": b"1", "created_at": NOON},
            version | {"id": 2, "number": 2, "message_id": "id-\u00fc", "value": '{"n": "\u00fc"}'.encode(), "created_at": NOON},
        ],
    )  # fmt: skip
    archive.end_without_a_row([live(number, queue_id=8, queue="clicks") for number in (20, 21)])
    archive.fill("message_event", [happened(11, 1, "sent", state=1), happened(12, 5, "sent", state=1)])


def rows(spark: SparkSession, lake: Lake, name: str) -> list[dict[str, Any]]:
    """The rows of a table of the lake, as any reader of Delta tables finds them."""
    [table] = [table for place, table in lake.tables() if str(place).endswith(f"/{name}")]
    found = pa.table(table.to_pyarrow_dataset().to_table()).to_pylist()
    return sorted(found, key=lambda row: str(list(row.values())))


def test_a_snapshot_has_a_table_of_everything_that_the_broker_holds(
    spark: SparkSession, archive: Archive, lake: Lake
) -> None:
    fill(archive)
    done = snapshot(spark, Database.from_url(archive.url), lake, TAKEN_AT)

    assert done.tables == {
        "messages": 4, "queues": 1, "topics": 1, "subscriptions": 2, "transactions": 2, "states": 1, "history": 1,
        "unarchived": 1, "groups": 2,
    }  # fmt: skip
    assert rows(spark, lake, "queues") == [{"queue": "orders", "settings": "{}", **CHANGED} | {
        "version": 1, "created_at": moment(0), "updated_at": moment(0),
    }]  # fmt: skip
    assert rows(spark, lake, "topics") == [{"topic": "news", "description": "it's \u00fc", **CHANGED}]
    shared = {"topic": "news", "target_queue": "orders", "set_properties": '{"a": 1}', "remove_properties": "[]"}
    assert rows(spark, lake, "subscriptions") == [
        {**shared, "subscription": "all", "filter": None, **CHANGED},
        {**shared, "subscription": "eu", "filter": "subject == 'eu'", **CHANGED},
    ]
    shared = {
        "principal": "shop", "opened_at": moment(NOON), "member_count": 2, "member_bytes": 4108, "taken_at": TAKEN_AT,
    }  # fmt: skip
    assert rows(spark, lake, "transactions") == [
        {"transaction_id": "t1", "state": "open", "expires_at": moment(NOON + 9), "ended_at": None, "cause": None, **shared},
        {
            "transaction_id": "t2", "state": "rolled_back", "expires_at": moment(NOON + 7), "ended_at": moment(NOON + 8),
            "cause": "timeout", **shared,
        },
    ]  # fmt: skip
    assert rows(spark, lake, "states") == [
        {
            "state_key": "game.17", "version": 2, "value": '{"n": "\u00fc"}', "metadata": "null", "message_id": "id-\u00fc",
            "updated_at": moment(NOON + 2), "taken_at": TAKEN_AT,
        }
    ]  # fmt: skip
    assert rows(spark, lake, "unarchived") == [
        {"queue": "clicks", "day": moment(NOON - NOON % DAY), "messages": 2, "taken_at": TAKEN_AT}
    ]
    [event] = rows(spark, lake, "history")
    assert (event["sequence_number"], event["queue"], event["number"]) == (1, "orders", 11)
    assert (event["event"], event["state"], event["at"]) == ("sent", "available", moment(NOON + 11))


def test_a_snapshot_counts_the_messages_of_each_group(spark: SparkSession, small_archive: Archive, lake: Lake) -> None:
    fill(small_archive)
    snapshot(spark, Database.from_url(small_archive.url), lake, TAKEN_AT)

    none = {"available": 0, "locked": 0, "scheduled": 0, "deferred": 0, "dead_lettered": 0, "blocked": 0}
    assert rows(spark, lake, "groups") == [
        {
            "queue": "orders", "group_id": "a", "messages": 2, **none, "available": 1, "blocked": 1,
            "first_enqueued_at": moment(NOON - 5), "first_sequence_number": 1, "taken_at": TAKEN_AT,
        },
        {
            "queue": "orders", "group_id": "b\u00fc", "messages": 1, **none, "dead_lettered": 1,
            "first_enqueued_at": moment(NOON), "first_sequence_number": 3, "taken_at": TAKEN_AT,
        },
    ]  # fmt: skip


@pytest.mark.parametrize("spec", [MESSAGES, STATES, GROUPS], ids=lambda spec: spec.name)
def test_a_snapshot_that_paused_leaves_the_tables_of_a_later_one(
    spark: SparkSession, small_archive: Archive, lake: Lake, spec: TableSpec
) -> None:
    fill(small_archive)
    database, later = Database.from_url(small_archive.url), TAKEN_AT + timedelta(seconds=1)

    class Paused(Lake):
        """A lake in which a snapshot pauses before it replaces a table, until a later one has ended."""

        def replace_by_later(self, spec: TableSpec, files: Sequence[DataFile], app_id: str, version: int) -> bool:
            if spec is paused_at:
                Archive.empty(small_archive.url).add_to_queue(7, "orders", [live(20, group_id="c")])
                snapshot(spark, database, lake, later)
            return super().replace_by_later(spec, files, app_id, version)

    paused_at = spec
    with pytest.raises(BadLake, match=f"/{spec.name} is of a snapshot that began later than this one, 2026-09-21"):
        snapshot(spark, database, Paused(lake.root), TAKEN_AT)
    assert [(row["sequence_number"], row["taken_at"]) for row in rows(spark, lake, "messages")] == [(20, later)]
    assert [(row["group_id"], row["taken_at"]) for row in rows(spark, lake, "groups")] == [("c", later)]
    assert rows(spark, lake, "states") == []


def test_a_snapshot_that_replaces_later_ones_also_begins_a_lake(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    fill(small_archive)
    done = snapshot(spark, Database.from_url(small_archive.url), lake, TAKEN_AT, replaces_later=True)
    assert {name: len(rows(spark, lake, name)) for name in done.tables} == done.tables
    assert done.messages == 4


def test_an_empty_broker_leaves_empty_tables(spark: SparkSession, archive: Archive, lake: Lake) -> None:
    done = snapshot(spark, Database.from_url(archive.url), lake, TAKEN_AT)

    assert set(done.tables) == {"messages", "groups", *(table.spec.name for table in BROKER_TABLES)}
    assert set(done.tables.values()) == {0}
    for table in BROKER_TABLES:
        [found] = table.rows(Database.from_url(archive.url), 0, 9)
        assert found.num_rows == 0
        assert set(found.column_names) == {*table.spec.schema.names} - {"taken_at"}


def test_ranges_hold_as_many_live_messages_each_among_any_number_of_archived_ones(archive: Archive) -> None:
    alive = [3, 4, 500, 501, 502, 7000, 9999, 10**12]
    archive.fill_archive(
        [archived(number) | {"export_batch": None} for number in range(1, 12_000, 7) if number not in alive]
    )
    archive.add_to_queue(7, "orders", [live(number) for number in alive])
    database = Database.from_url(archive.url)

    found = even_ranges_of(database, MESSAGE_NUMBERS, rows=3)

    assert found == [(3, 500), (501, 9998), (9999, 10**12)]
    held = [[number for number in alive if first <= number <= last] for first, last in found]
    assert list(map(len, held)) == [3, 3, 2]
    assert even_ranges_of(database, MESSAGE_NUMBERS) == [(3, 10**12)]
    assert even_ranges_of(database, "SELECT id AS number FROM topic") == []


@pytest.mark.parametrize(
    ("starts", "last", "ranges"),
    [
        ([], 0, []),
        ([5], 5, [(5, 5)]),
        ([1, 3, 9], 20, [(1, 2), (3, 8), (9, 20)]),
        ([1, 3, 9, 10], 20, [(1, 8), (9, 20)]),
        ([1, 1, 4], 4, [(1, 3), (4, 4)]),
    ],
)
def test_ranges_begin_at_these_numbers_and_are_not_too_many(
    starts: list[int], last: int, ranges: list[tuple[int, int]]
) -> None:
    assert ranges_from(starts, last, most=3) == ranges
