"""The SQL views over a lake: Spark and DuckDB give the same rows, and these are what the history of messages says."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from peeklock_pipeline import source
from peeklock_pipeline.database import Database
from peeklock_pipeline.dialects import Dialect
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.snapshot import snapshot
from peeklock_pipeline.jobs.views import BASE_TABLES, queries, statements
from peeklock_pipeline.lake import Lake
from pyspark.sql import SparkSession

from tests.pipeline.archive import DEAD_LETTERED, NOON, Archive, archived, happened, live
from tests.pipeline.conftest import RunCommand
from tests.pipeline.histories import ended, fill

VIEWS = ("messages", "deliveries", "dead_letters", "waiting_time")
HOUR = 3_600_000_000
SECOND = 1_000_000


def delivered(at: int) -> dict[str, int]:
    return {"available_at": NOON, "first_delivered_at": at, "last_delivered_at": at}


@pytest.fixture
def filled_lake(spark: SparkSession, small_archive: Archive, lake: Lake) -> Lake:
    """Messages with and without histories, ended and in queues, exported and in a snapshot; message 4 ended after it."""
    first = [
        archived(1, delivery_count=2, **delivered(NOON + SECOND), settled_at=NOON + 9 * SECOND),
        archived(2, outcome="purged", dead_letter_reason="poison", delivery_count=1, **delivered(NOON + 2 * SECOND)),
    ]
    many = [
        archived(number, queue="bulk", **delivered(NOON + HOUR // 2 * (number % 5) + number * 1237))
        | {"lock_token": None}
        for number in range(100, 137)
    ]
    late = archived(5, first_delivered_at=NOON - 9, last_delivered_at=NOON - 9, available_at=NOON)
    small_archive.seal_with_events(
        1,
        [*first, *many, late],
        [
            happened(1, 1, "sent", state=1),
            happened(2, 1, "delivered", state=2, receiver_id="a", delivery_count=1),
            happened(3, 1, "renewed", state=2, receiver_id="a", delivery_count=1),
            happened(4, 1, "released", outcome="lock_expired", state=1, delivery_count=1),
            happened(6, 1, "delivered", state=2, receiver_id="b", delivery_count=2),
            happened(9, 1, "settled", outcome="completed", delivery_count=2, reason="it's done"),
        ],
    )
    dead = {"state": DEAD_LETTERED, "dead_lettered_at": NOON}
    small_archive.add_to_queue(
        1,
        "orders",
        [
            live(3, state=2, delivery_count=1, receiver_id="c", **delivered(NOON + 3 * SECOND)),
            live(4, delivery_count=1, **delivered(NOON)),
            live(6, **dead),
            live(7, **dead, dead_letter_reason="poison", properties='{"a": 1}', body=b"\0"),
        ],
    )
    small_archive.fill("message_event", [happened(20, 3, "delivered", state=2, receiver_id="c", delivery_count=1)])
    database = Database.from_url(small_archive.url)
    export(spark, database, lake)
    snapshot(spark, database, lake)
    small_archive.seal(2, [archived(4, delivery_count=1, **delivered(NOON), receiver_id="d")])
    export(spark, database, lake)
    return lake


def in_spark(spark: SparkSession, lake: Lake) -> Callable[[str], list[dict[str, Any]]]:
    source.views(spark, lake.root)
    return lambda query: spark.sql(query).toArrow().to_pylist()


def in_duckdb(lake: Lake) -> Callable[[str], list[dict[str, Any]]]:
    connection = duckdb.connect()
    source.duckdb_views(connection, lake.root)
    return lambda query: connection.sql(query).to_arrow_table().to_pylist()


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    in_utc = [
        {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows
    ]
    return sorted(in_utc, key=lambda row: str(list(row.values())))


@pytest.mark.usefixtures("compiled")
def test_spark_and_duckdb_give_the_same_rows_of_every_view(spark: SparkSession, filled_lake: Lake) -> None:
    spark_rows, duckdb_rows = in_spark(spark, filled_lake), in_duckdb(filled_lake)
    for view in VIEWS:
        found = ordered(spark_rows(f"SELECT * FROM {view}"))
        assert found == ordered(duckdb_rows(f"SELECT * FROM {view}")), view
        assert found, view


@pytest.fixture
def query(filled_lake: Lake) -> Callable[[str], list[Any]]:
    """The rows of a query, without the names of its columns. Spark gives the same, as the test before shows."""
    run = in_duckdb(filled_lake)
    return lambda text: [tuple(row.values()) for row in run(text)]


def test_messages_are_in_their_queue_or_ended_never_both(query: Callable[[str], list[Any]]) -> None:
    assert query(
        "SELECT sequence_number, state, outcome, waiting_seconds, processing_seconds, end_to_end_seconds FROM messages "
        "WHERE queue = 'orders' ORDER BY 1"
    ) == [
        (1, "ended", "completed", 1.0, 8.0, 11.0),
        (2, "ended", "purged", 2.0, None, None),
        (3, "locked", None, 3.0, None, None),
        (4, "ended", "completed", 0.0, 0.0, 2.0),
        (5, "ended", "completed", None, 9e-6, 2.0),
        (6, "dead_lettered", None, None, None, None),
        (7, "dead_lettered", None, None, None, None),
    ]


def test_deliveries_are_those_of_histories_and_the_last_one_of_other_messages(
    query: Callable[[str], list[Any]],
) -> None:
    assert query(
        "SELECT sequence_number, delivery, receiver_id, ending, reason, seconds, from_history FROM deliveries "
        "WHERE queue = 'orders' ORDER BY 1, 2"
    ) == [
        (1, 1, "a", "lock_expired", None, 2e-6, True),
        (1, 2, "b", "completed", "it's done", 3e-6, True),
        (2, 1, None, None, None, None, False),
        (3, 1, "c", None, None, None, True),
        (4, 1, "d", "completed", None, 0.0, False),
        (5, 1, None, "completed", None, 9e-6, False),
    ]


def test_dead_letters_are_those_that_wait_and_those_that_left_with_a_reason(query: Callable[[str], list[Any]]) -> None:
    assert query("SELECT sequence_number, reason, is_waiting, outcome FROM dead_letters ORDER BY 1") == [
        (2, "poison", False, "purged"),
        (6, "(none given)", True, None),
        (7, "poison", True, None),
    ]


def test_waiting_times_are_by_queue_and_hour(query: Callable[[str], list[Any]]) -> None:
    noon = datetime.fromtimestamp(NOON / 1e6, UTC)
    [(hour, *rest)] = query("SELECT hour, messages, p50, p95, longest FROM waiting_time WHERE queue = 'orders'")
    assert (hour.astimezone(UTC), *rest) == (noon, 4, 1.0, 3.0, 3.0)
    assert query("SELECT sum(messages) FROM waiting_time WHERE queue = 'bulk'") == [(37,)]


def test_a_lake_without_a_snapshot_has_the_views_of_what_ended(
    spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    small_archive.seal(1, [archived(1)])
    export(spark, Database.from_url(small_archive.url), lake)

    for run in (in_spark(spark, lake), in_duckdb(lake)):
        assert run("SELECT count(*) AS n FROM messages") == [{"n": 1}]
        assert run("SELECT delivery FROM deliveries") == [{"delivery": 1}]


def test_the_printed_statements_make_the_same_views(
    spark: SparkSession, filled_lake: Lake, run_command: RunCommand, tmp_path: Path
) -> None:
    code, for_spark, _ = run_command("views", "--lake", filled_lake.root)
    file = tmp_path / "views.sql"
    assert (code, run_command("views", "--lake", filled_lake.root, "--dialect", "duckdb", "--out", file)[0]) == (0, 0)
    for_duckdb = file.read_text()

    assert for_duckdb.startswith("INSTALL delta;\nLOAD delta;\n")
    assert f"delta_scan('{filled_lake.root}/archive')" in for_duckdb
    assert f"delta.`{filled_lake.root}/archive`" in for_spark
    # As these engines find the tables with their connectors for Delta, which are not installed here.
    places = {r"delta_scan\('.*?/(\w+)'\)": for_duckdb, r"delta.`.*?/(\w+)`": for_spark}
    registered = {spec.name: f"lake_{spec.name}" for spec in BASE_TABLES}
    for (place, printed), dialect in zip(places.items(), (Dialect.DUCKDB, Dialect.SPARK), strict=True):
        found = re.sub(place, r"lake_\1", printed)
        for name, text in queries(registered, dialect).items():
            assert f"CREATE OR REPLACE VIEW {name} AS\n{text};\n" in found


def test_the_place_of_a_lake_is_quoted_in_the_statements(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "o'neil `s")
    fill(lake, [ended(1, 0, 1, 1, 2)])
    assert "o''neil `s/archive')" in statements(lake, Dialect.DUCKDB)
    assert "/o'neil ``s/archive`" in statements(lake, Dialect.SPARK)


def test_a_lake_that_was_not_exported_has_no_views(lake: Lake, run_refused: Callable[..., str]) -> None:
    assert "nothing was exported to it" in run_refused("views", "--lake", lake.root)
