"""Jobs that read a lake in an object store do there what they do with the same lake in a directory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import httpx
import pytest
from peeklock_pipeline import source
from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.copy import copy
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.snapshot import snapshot
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.table_specs import ARCHIVE
from peeklock_pipeline.transforms.what_if import WHAT_IF
from pyspark.sql import DataFrame, SparkSession

from tests.faults.database_access import execute
from tests.peeklock_process import PeeklockProcess
from tests.pipeline.archive import DAY, DEAD_LETTERED, Archive, archived, happened, live
from tests.pipeline.conftest import RunCommand
from tests.pipeline.object_store import ObjectStore

TIMEOUT_SECONDS = 60.0
SECOND = 1_000_000
BATCHES, ROWS = 3, 8
VIEWS = ("messages", "deliveries", "dead_letters", "waiting_time")


@pytest.fixture
def both(spark: SparkSession, small_archive: Archive, lake: Lake, remote_lake: Lake) -> tuple[Lake, Lake]:
    """A lake in a directory and one in an object store with the same messages, which were sealed two days ago."""
    then = int(time.time()) * SECOND - 2 * DAY
    database = Database.from_url(small_archive.url)
    for batch in range(1, BATCHES + 1):
        rows = [message(batch * 100 + number, then) for number in range(ROWS)]
        small_archive.seal_with_events(batch, rows, events_of(batch, then))
        ages = "sealed_at = :at, remove_at = :at + :kept"
        execute(small_archive.url, f"UPDATE export_batch SET {ages} WHERE number = :number",
                at=then + batch, kept=30 * DAY, number=batch)  # fmt: skip
        for place in (lake, remote_lake):
            export(spark, database, place)
    dead = live(1, state=DEAD_LETTERED, dead_lettered_at=then, dead_letter_reason="poison")
    small_archive.add_to_queue(1, "orders", [dead, live(2)])
    for place in (lake, remote_lake):
        snapshot(spark, database, place)
    return lake, remote_lake


def message(number: int, then: int) -> dict[str, Any]:
    """A message of one of two queues that waited, failed and took differently long."""
    begun = then + number * SECOND
    return archived(
        number, queue=("billing", "orders")[number % 2], group_id=f"g{number % 3}", body_kind=2, body=bytes([number % 256]),
        enqueued_at=then, available_at=then, first_delivered_at=begun, last_delivered_at=begun,
        settled_at=begun + number % 5 * SECOND, remove_at=then + 30 * DAY, failure_count=number % 2,
        last_failure="boom" if number % 2 else None, delivery_count=1 + number % 2,
    )  # fmt: skip


def events_of(batch: int, then: int) -> list[dict[str, Any]]:
    """The history of the first message of a batch."""
    return [
        happened(batch * 10 + number, batch * 100, event, remove_at=then + 30 * DAY)
        for number, event in enumerate(("sent", "delivered"))
    ]


@pytest.fixture
def server(small_archive: Archive, tmp_path: Path) -> Iterator[str]:
    """The URL of a server of this archive."""
    running = PeeklockProcess(tmp_path, database_url=small_archive.url)
    yield running.url
    running.end()


def queue(server: str) -> str:
    """Return the name of a new queue with duplicate detection."""
    name = uuid4().hex
    settings = {"duplicate_detection_window_seconds": 3600}
    httpx.put(f"{server}/v1/queues/{name}", json=settings, timeout=TIMEOUT_SECONDS).raise_for_status()
    return name


def messages_of(server: str, name: str) -> list[dict[str, Any]]:
    """Return and remove the messages of a queue, without what the server adds."""
    asked = {"max_messages": 1000, "mode": "receive_and_delete"}
    answer = httpx.post(f"{server}/v1/queues/{name}/messages/receive", json=asked, timeout=TIMEOUT_SECONDS)
    kept = ("message_id", "body_base64", "group_id", "properties")
    return sorted(
        ({field: found[field] for field in kept} for found in answer.raise_for_status().json()["messages"]),
        key=lambda found: found["properties"]["replayed_sequence_number"],
    )


def test_a_replay_sends_the_same_messages_once(
    run_command: RunCommand, both: tuple[Lake, Lake], object_store: ObjectStore, server: str
) -> None:
    sent: list[list[dict[str, Any]]] = []
    for place, options in zip(both, ([], object_store.words), strict=True):
        name = queue(server)
        command = ("replay", "--lake", place.root, *options, "--url", server, "--to", name, "--name", "again")
        orders = (*command, "--where", "queue = 'orders' AND sequence_number > 200")
        assert "selects 8 messages with 8 bytes, up to batch 3. 8 would be sent" in run_command(*orders, "--plan")[1]
        assert run_command(*orders)[1] == f"Replay again sent 8 messages to {name}.\n"
        assert "sent 0 messages" in run_command(*orders)[1]
        sent.append(messages_of(server, name))
    assert len(sent[0]) == ROWS
    assert sent[0] == sent[1]


def test_a_trim_removes_what_the_lake_has_and_leaves_what_differs(
    run_command: RunCommand,
    both: tuple[Lake, Lake],
    small_archive: Archive,
    object_store: ObjectStore,
    server: str,
) -> None:
    _, place = both
    execute(small_archive.url, "UPDATE archive SET priority = 9 WHERE sequence_number = 300")
    code, out, err = run_command("trim", "--lake", place.root, *object_store.words, "--url", server)
    assert (code, out.splitlines()[-1]) == (1, "Removed 16 messages in 2 batches from the server."), err
    assert small_archive.numbers() == set(range(300, 300 + ROWS))
    assert (
        "is not a lake yet" in run_command("trim", "--lake", f"{place.root}x", *object_store.words, "--url", server)[2]
    )


def test_a_model_of_another_policy_has_the_same_answer(
    run_command: RunCommand, spark: SparkSession, both: tuple[Lake, Lake], object_store: ObjectStore
) -> None:
    answers = [
        run_command("what-if", "--lake", place.root, *options, "--policy", "limit=2,lock=5s")
        for place, options in zip(both, ([], object_store.words), strict=True)
    ]
    assert answers[0][0] == 0, answers[0][2]
    assert answers[0] == answers[1]
    assert rows(both[0].read(spark, WHAT_IF)) == rows(both[1].read(spark, WHAT_IF))


@pytest.mark.usefixtures("compiled")
def test_the_views_have_the_same_rows_in_spark_and_in_duckdb(spark: SparkSession, both: tuple[Lake, Lake]) -> None:
    found: list[list[Any]] = []
    for place in both:
        source.views(spark, place)
        connection = duckdb.connect()
        source.duckdb_views(connection, place)
        for view in VIEWS:
            found.append([view, rows(spark.sql(f"SELECT * FROM {view}"))])
            known = connection.sql(f"SELECT count(*) FROM {view}").fetchall()
            assert known == [(len(found[-1][1]),)], view
    assert found[: len(VIEWS)] == found[len(VIEWS) :]
    assert all(of_view for _, of_view in found)


def test_views_are_printed_for_an_object_store(
    run_command: RunCommand, both: tuple[Lake, Lake], object_store: ObjectStore
) -> None:
    _, place = both
    code, printed, _ = run_command("views", "--lake", place.root, *object_store.words, "--dialect", "duckdb")
    assert code == 0
    assert f"delta_scan('{place.root}/archive')" in printed
    assert f"delta_scan('{place.root}/messages')" in printed
    assert object_store.secret not in printed


def test_every_column_is_read_as_of_a_directory(
    spark: SparkSession, both: tuple[Lake, Lake], object_store: ObjectStore
) -> None:
    source.register(spark)
    local, place = both
    options = {f"storage.{name}": value for name, value in object_store.options.items()}
    here = source.read(spark, lake=str(local.root))
    there = source.read(spark, lake=str(place.root), **options)
    assert here.columns == there.columns == [name for name in ARCHIVE.schema.names if name != "row_checksum"]
    assert rows(here) == rows(there)
    chosen = "queue = 'orders' AND export_batch > 1"
    counts = [frame.where(chosen).selectExpr("count(body)", "count(history)").collect() for frame in (here, there)]
    assert counts[0] == counts[1]
    assert source.read(spark, lake=str(place.root), fromBatch="3", **options).count() == ROWS


def test_a_copy_goes_from_an_object_store_to_a_directory(
    spark: SparkSession, both: tuple[Lake, Lake], tmp_path: Path
) -> None:
    local, place = both
    target = Lake(tmp_path / "copy")
    assert copy(spark, place, target).messages == BATCHES * ROWS
    assert rows(target.read(spark)) == rows(local.read(spark))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame in one order."""
    return sorted(frame.toArrow().to_pylist(), key=lambda row: str(list(row.values())))
