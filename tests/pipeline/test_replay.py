"""Replays from a lake into a queue of a real server: each message is sent once, after any crash and any number of
runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.compact import compact
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.replay import ReplayPlan, ReplayResult, merge_ranges, plan, replay
from peeklock_pipeline.jobs.retention import retention
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.refusals import (
    BadExpression,
    BadLake,
    BadOption,
    InDoubt,
    NoDuplicateDetection,
    SendRefused,
)
from peeklock_pipeline.replay_log import Portion, ReplayLog, ReplayState
from peeklock_pipeline.replay_request import InDoubtAction, ReplayRequest
from peeklock_pipeline.sending import Destination
from peeklock_pipeline.table_specs import ARCHIVE
from peeklock_pipeline.transforms.replay import RANGES
from pyspark.sql import SparkSession

from tests.bounds import bounded
from tests.faults.database_access import execute
from tests.peeklock_process import PeeklockProcess
from tests.pipeline.archive import Archive, archived
from tests.pipeline.counting_lake import CountingLake
from tests.pipeline.faulty_proxy import FaultyProxy
from tests.servers import POLL_SECONDS, end_tree

RunCommand = Callable[..., tuple[int, str, str]]
TIMEOUT_SECONDS = 600.0
HOUR = 3600.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeeklockProcess]:
    """A server with an embedded database."""
    found = PeeklockProcess(tmp_path_factory.mktemp("server"))
    yield found
    found.end()


@pytest.fixture
def queue(service: PeeklockProcess, request: pytest.FixtureRequest) -> Queue:
    """A queue of this test with an hour of duplicate detection."""
    return Queue(
        service, request.node.name[:100].replace("[", "-").rstrip("]-_"), duplicate_detection_window_seconds=HOUR
    )


class Queue:
    """A queue of the server, read over HTTP."""

    def __init__(self, service: PeeklockProcess, name: str, **settings: Any) -> None:
        self.service = service
        self.name = name
        self.url = f"{service.url}/v1/queues/{name}"
        httpx.put(self.url, json=settings, timeout=TIMEOUT_SECONDS).raise_for_status()

    @property
    def destination(self) -> Destination:
        return Destination.from_url(self.service.url, self.name)

    def count(self) -> int:
        """Return the number of its messages."""
        return httpx.get(self.url, timeout=TIMEOUT_SECONDS).json()["counts"]["available"]

    def messages(self) -> list[dict[str, Any]]:
        """Return its messages in the order of delivery."""
        found: list[dict[str, Any]] = []
        for _ in bounded("the queue is empty"):
            some = self._some()
            if not some:
                break
            found += some
        return found

    def forget(self) -> None:
        """Let its duplicate detection window pass."""
        url = f"sqlite:///{self.service.directory / 'data' / 'peeklock.db'}"
        execute(url, "DELETE FROM recent_id")

    def _some(self) -> list[dict[str, Any]]:
        asked = {"max_messages": 1000, "mode": "receive_and_delete"}
        return (
            httpx.post(f"{self.url}/messages/receive", json=asked, timeout=TIMEOUT_SECONDS)
            .raise_for_status()
            .json()["messages"]
        )


def exported(spark: SparkSession, archive: Archive, lake: Lake, batch: int, rows: list[dict[str, Any]]) -> None:
    """Export one more batch into the lake."""
    archive.seal(batch, rows)
    export(spark, Database.from_url(archive.url), lake)


def replay_request(queue: Queue, where: str = "true", name: str | None = None, rate: float = 100_000) -> ReplayRequest:
    return ReplayRequest.create(where, queue.destination, rate, name)


def test_messages_are_sent_unchanged_and_name_their_origin(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue
) -> None:
    rich = archived(
        1, queue="orders", message_id='an "id"', body_kind=1, body=b'{"n":  1}', group_id="blue", priority=7,
        headers='{"content_type":"application/json","subject":"a \\"thing\\""}',
        properties='{"n":1.5,"is":true,"none":null,"replay_name":"an earlier one"}',
    )  # fmt: skip
    plain = [archived(2, body_kind=2, body=b"\x00\xff", properties="{}"), archived(3), archived(4, queue="others")]
    exported(spark, small_archive, lake, 1, [rich, *plain])

    done = replay(spark, lake, replay_request(queue, "queue = 'orders'", "again"))

    found = {message["message_id"]: message for message in queue.messages()}
    assert done == ReplayResult("again", messages=3, duplicates=0, skipped=0, done_before=0)
    assert sorted(found) == ["replay:again:1", "replay:again:2", "replay:again:3"]
    assert found["replay:again:1"].items() >= {
        "body": {"n": 1}, "content_type": "application/json", "subject": 'a "thing"', "group_id": "blue", "priority": 7,
        "properties": {
            "n": 1.5, "is": True, "none": None, "replay_name": "again", "replayed_from_queue": "orders",
            "replayed_sequence_number": 1, "replayed_message_id": 'an "id"',
        },
    }.items()  # fmt: skip
    assert found["replay:again:2"]["body_base64"] == "AP8="
    assert found["replay:again:2"]["properties"]["replayed_message_id"] == "id-2"
    assert "body" not in found["replay:again:3"]


def test_a_second_run_sends_nothing_after_the_window_and_further_exports(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue
) -> None:
    exported(spark, small_archive, lake, 1, [archived(number) for number in range(1, 21)])
    replay(spark, lake, replay_request(queue))
    queue.forget()
    exported(spark, small_archive, lake, 2, [archived(number) for number in range(21, 31)])

    seen = plan(spark, lake, replay_request(queue))
    again = replay(spark, lake, replay_request(queue))
    anew = replay(spark, lake, replay_request(queue, name="anew"))

    assert (seen.messages, seen.done, seen.remaining, seen.sample) == (20, 20, 0, [])
    assert (again.messages, again.done_before) == (0, 20)
    assert anew.messages == 30
    assert queue.count() == 50


def test_a_plan_counts_and_changes_nothing(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue
) -> None:
    exported(spark, small_archive, lake, 1, [archived(number, body_kind=2, body=b"four") for number in range(1, 11)])

    found = plan(spark, lake, replay_request(queue, "sequence_number > 2", "planned"))

    assert (found.messages, found.bytes, found.done, found.remaining, found.last_batch) == (8, 32, 0, 8, 1)
    assert [row["sequence_number"] for row in found.sample] == [3, 4, 5, 6, 7]
    assert queue.count() == 0
    assert "8 would be sent to there, first of them:\n  3  orders  completed  2026" in found.sentence("there")


def test_messages_of_a_group_keep_their_order(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue
) -> None:
    rows = [archived(number, group_id=f"g{number % 3}") for number in range(1, 61)]
    exported(spark, small_archive, lake, 1, rows)

    replay(spark, lake, replay_request(queue))

    groups: dict[str, list[int]] = {}
    for message in queue.messages():
        groups.setdefault(message["group_id"], []).append(message["properties"]["replayed_sequence_number"])
    assert len(groups) == 3
    assert all(numbers == sorted(numbers) and len(numbers) == 20 for numbers in groups.values())


def test_the_rate_is_that_of_all_tasks_together(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue
) -> None:
    exported(spark, small_archive, lake, 1, [archived(number) for number in range(1, 33)])

    began = time.monotonic()
    replay(spark, lake, replay_request(queue, rate=8))
    seconds = time.monotonic() - began

    assert queue.count() == 32
    assert seconds > 32 / 8 - 2  # the first messages of each task wait for nothing


@pytest.mark.faults
@pytest.mark.nightly
def test_a_killed_run_is_continued_where_it_ended(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue, tmp_path: Path
) -> None:
    exported(spark, small_archive, lake, 1, [archived(number) for number in range(1, 121)])
    with FaultyProxy(queue.service.url, [None, None, None, "hold"]) as front:
        module = "tests.pipeline.replay_in_portions"
        command = [sys.executable, "-m", module, front.url, queue.name, lake.root]
        kill_once(front.holds, command, tmp_path / "log")
    before = queue.count()

    seen = plan(spark, lake, replay_request(queue, name="killed"))
    done = replay(spark, lake, replay_request(queue, name="killed"))

    sent = sorted(message["properties"]["replayed_sequence_number"] for message in queue.messages())
    assert before == 100  # the second portion is stored, but not recorded
    assert (seen.done, seen.in_doubt) == (50, 50)
    assert sent == list(range(1, 121))
    assert (done.messages, done.duplicates, done.done_before) == (70, 50, 50)


def kill_once(is_time: Event, command: Sequence[object], log: Path) -> None:
    """Run a command until the event, and then kill it and its JVM."""
    with log.open("wb") as file:
        process = subprocess.Popen([*map(str, command)], stdout=file, stderr=file, start_new_session=True)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not is_time.wait(POLL_SECONDS) and process.poll() is None and time.monotonic() < deadline:
            pass
        assert process.poll() is None, log.read_text()
        end_tree(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.behaviour("S4.19")
def test_messages_in_doubt_are_not_sent_without_a_decision(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue
) -> None:
    exported(spark, small_archive, lake, 1, [archived(number) for number in range(1, 11)])
    for name in ("sent", "skipped"):
        interrupted(spark, lake, replay_request(queue, name=name))

    def late() -> float:
        return time.time() + 2 * HOUR

    with pytest.raises(InDoubt, match="ended while it sent 10 messages with sequence numbers from 1 to 10"):
        replay(spark, lake, replay_request(queue, name="sent"), clock=late)
    sent = replay(spark, lake, replay_request(queue, name="sent"), InDoubtAction.SEND, clock=late)
    skipped = replay(spark, lake, replay_request(queue, name="skipped"), InDoubtAction.SKIP, clock=late)

    assert (sent.messages, sent.skipped) == (10, 0)
    assert (skipped.messages, skipped.skipped) == (0, 10)
    assert replay(spark, lake, replay_request(queue, name="skipped")).done_before == 10


def interrupted(spark: SparkSession, lake: Lake, begun: ReplayRequest) -> None:
    """Begin a replay whose messages the server then refuses, which leaves its first portion begun."""
    url = f"{begun.destination.url}/v1/queues/{begun.destination.queue}"
    httpx.patch(url, json={"status": "send_disabled"}, timeout=TIMEOUT_SECONDS).raise_for_status()
    with pytest.raises(SendRefused, match="send-disabled"):
        replay(spark, lake, begun)
    httpx.patch(url, json={"status": "active"}, timeout=TIMEOUT_SECONDS).raise_for_status()


def test_portions_are_neighbours(spark: SparkSession) -> None:
    counted = [Portion(1, 3, 3), Portion(5, 6, 2), Portion(8, 9, 1), Portion(10, 30, 20), Portion(31, 31, 1)]

    found = merge_ranges(counted, 5)

    assert found == [Portion(1, 6, 5), Portion(8, 9, 1), Portion(10, 30, 20), Portion(31, 31, 1)]


def test_neighbouring_messages_are_cut_into_portions(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue
) -> None:
    in_one_range, far_away = range(1, 25), 1_000 * RANGES
    exported(spark, small_archive, lake, 1, [archived(number) for number in (*in_one_range, far_away)])
    reported: list[tuple[int, int]] = []

    done = replay(
        spark,
        lake,
        replace(replay_request(queue), portion_messages=10),
        progress=lambda *counts: reported.append(counts),
    )

    assert done.messages == queue.count() == 25
    assert {of for _, of in reported} == {25}
    assert all(after - before <= 10 for (before, _), (after, _) in pairwise(reported))


def test_each_portion_reads_only_the_files_that_have_its_messages(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue
) -> None:
    for batch in range(1, 5):
        exported(spark, small_archive, lake, batch, [archived(batch * 100 + number) for number in range(10)])
    counting = CountingLake(lake)
    request = replay_request(queue, "outcome = 'completed'", "first")
    replay(spark, counting, replace(request, portion_messages=10))
    every = len(ARCHIVE.schema)
    assert counting.reads == [(4, 3), *[(1, every)] * 4]  # counted in three columns, sent from one file each
    assert queue.count() == 40


def test_a_replay_reads_no_files_of_later_exports(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue
) -> None:
    exported(spark, small_archive, lake, 1, [archived(number) for number in range(1, 11)])
    request = replay_request(queue)
    plan_only = ReplayLog(lake, request.name)
    plan_only.plan(ReplayState("true", queue.name, 1))
    exported(spark, small_archive, lake, 2, [archived(number) for number in range(11, 21)])
    counting = CountingLake(lake)
    assert replay(spark, counting, request).messages == 10
    assert set(counting.files_read()) == {1}


def test_a_replay_reads_its_version_of_the_lake_while_other_jobs_change_it(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue
) -> None:
    for batch in (1, 2):
        exported(spark, small_archive, lake, batch, [archived(batch * 100 + number) for number in range(10)])
    request = replace(replay_request(queue), portion_messages=10)

    def change(sent: int, total: int) -> None:
        if sent == 10:
            compact(spark, lake)
            retention(spark, lake, date(2027, 1, 1))

    assert replay(spark, lake, request, progress=change).messages == 20
    assert queue.count() == 20


def test_files_that_are_removed_during_a_replay_are_refused_with_a_sentence(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue
) -> None:
    for batch in (1, 2):
        exported(spark, small_archive, lake, batch, [archived(batch * 100 + number) for number in range(10)])
    request = replace(replay_request(queue), portion_messages=10)

    def vacuumed(sent: int, total: int) -> None:
        if sent == 10:
            old = lake.archive_table().file_uris()
            compact(spark, lake)
            for file in old:
                Path(file).unlink()

    with pytest.raises(BadLake, match="Another job has removed files of the lake that this replay was reading"):
        replay(spark, lake, request, progress=vacuumed)
    assert replay(spark, lake, request).messages == 10
    assert queue.count() == 20


def test_invalid_replays_are_refused(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue, service: PeeklockProcess, tmp_path: Path
) -> None:
    exported(spark, small_archive, lake, 1, [archived(1)])
    replay(spark, lake, replay_request(queue, name="taken"))
    careless = Queue(service, "careless")

    with pytest.raises(
        BadExpression, match=r"The filter 'colour = 1' is refused: .*`colour`.* The columns are sequence"
    ):
        plan(spark, lake, replay_request(queue, "colour = 1"))
    with pytest.raises(BadExpression, match=r"The filter 'queue =' is refused: "):
        plan(spark, lake, replay_request(queue, "queue ="))
    with pytest.raises(BadOption, match="The replay taken sends what matches 'true'"):
        plan(spark, lake, replay_request(queue, "queue = 'orders'", "taken"))
    with pytest.raises(BadOption, match="The name of a replay has 1 to 64 letters"):
        replay_request(queue, name="no name")
    with pytest.raises(NoDuplicateDetection, match="does not detect duplicates"):
        replay(spark, lake, replay_request(careless))
    with pytest.raises(BadLake, match="is not a lake yet"):
        plan(spark, Lake(tmp_path / "none"), replay_request(queue))


def test_the_command_prints_sentences_and_json(
    spark: SparkSession, small_archive: Archive, lake: Lake, queue: Queue, run_command: RunCommand
) -> None:
    exported(spark, small_archive, lake, 1, [archived(1), archived(2)])
    command = ("replay", "--lake", lake.root, "--to", queue.name, "--url", queue.service.url, "--name", "told")
    orders = (*command, "--where", "queue = 'orders'")

    planned = run_command(*orders, "--plan")
    done = run_command(*orders, "--json")
    refused = run_command(*orders, "--rate", "0")

    assert planned[:2] == (0, PLANNED.format(queue.name))
    assert json.loads(done[1]) == {"replay": "told", "messages": 2, "duplicates": 0, "skipped": 0, "done_before": 0}
    assert refused == (2, "", "The rate is a number of messages per second above 0.\n")


def test_one_message_is_not_told_as_several() -> None:
    plan = ReplayPlan("one", last_batch=3, messages=1, bytes=1, done=0, in_doubt=0, remaining=1, sample=[])
    assert plan.sentence("q") == "Replay one selects 1 message with 1 byte, up to batch 3. 1 would be sent to q."
    result = ReplayResult("one", messages=1, duplicates=1, skipped=0, done_before=0)
    assert result.sentence("q") == "Replay one sent 1 message to q, of which 1 had arrived before."


PLANNED = """\
Replay told selects 2 messages with 0 bytes, up to batch 1. 2 would be sent to {}, first of them:
  1  orders  completed  2026-09-21 12:00:00  id-1
  2  orders  completed  2026-09-21 12:00:00  id-2
"""
