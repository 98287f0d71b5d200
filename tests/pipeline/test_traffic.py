"""Eight writers send, receive and complete while exports and audits run in turn, and nothing is lost to the lake."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.audit import audit
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.trim import Server, TrimResult, trim
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.refusals import ServerUnavailable
from pyspark.sql import SparkSession

from tests.bounds import bounded
from tests.faults.database_access import execute
from tests.peeklock_process import PeeklockProcess
from tests.pipeline.archive import Archive
from tests.servers import POLL_SECONDS

WRITERS = 8
MESSAGES = 20
EXPORTS = {"postgresql": 4, "mysql": 2, "sqlite": 2}
"""How many exports find something while the writers write."""

ROUNDS = 3
"""How often a writer sends and receives during each export, so that there is as much to export on a fast machine."""

TIMEOUT_SECONDS = 240.0
HOUR = 3_600_000_000


@pytest.fixture
def service(archive: Archive, tmp_path: Path) -> Iterator[PeeklockProcess]:
    """A server on each engine's archive, which seals twice per second."""
    running = PeeklockProcess(tmp_path, database_url=archive.url, seal_interval_seconds=0.5)
    yield running
    running.end()


def write(url: str, writer: int, rounds: Iterable[int]) -> list[str]:
    """Send messages, receive and complete any, and send again; returns the accepted ids."""
    accepted: list[str] = []
    with httpx.Client(base_url=f"{url}/v1/queues/orders", timeout=TIMEOUT_SECONDS) as queue:
        for number in rounds:
            ids = [f"w{writer}-{number}-{place}" for place in range(MESSAGES)]
            sent = queue.post(
                "/messages/batch", json={"messages": [{"message_id": name, "body": name} for name in ids]}
            )
            sent.raise_for_status()
            accepted += ids
            complete(queue)
    return accepted


def complete(queue: httpx.Client) -> int:
    """Receive up to as many as one writer sends at a time, and complete them; how many there were."""
    received = queue.post("/messages/receive", json={"max_messages": MESSAGES}).raise_for_status()
    tokens = [message["lock_token"] for message in received.json()["messages"]]
    if tokens:
        settlements = [{"action": "complete", "lock_token": token} for token in tokens]
        settled = queue.post("/settle", json={"settlements": settlements}).raise_for_status()
        assert {result["result"] for result in settled.json()["results"]} == {"settled"}
    return len(tokens)


def test_exports_and_audits_beside_eight_writers_lose_nothing(
    spark: SparkSession, archive: Archive, service: PeeklockProcess, lake: Lake, tmp_path: Path
) -> None:
    httpx.put(f"{service.url}/v1/queues/orders", json={}, timeout=TIMEOUT_SECONDS).raise_for_status()
    database = Database.from_url(archive.url)
    turns, enough = threading.Semaphore(0), threading.Event()
    with ThreadPoolExecutor(WRITERS) as threads:
        writers = [
            threads.submit(write, service.url, writer, repeat_in_order(turns, enough)) for writer in range(WRITERS)
        ]
        try:
            for _ in export_times(EXPORTS[database.engine], spark, database, lake):
                turns.release(WRITERS * ROUNDS)
                if lake.last_batch():
                    assert audit(spark, database, lake).findings == []
        finally:
            enough.set()
            turns.release(WRITERS)
    accepted = [name for writer in writers for name in writer.result()]
    with httpx.Client(base_url=f"{service.url}/v1/queues/orders", timeout=TIMEOUT_SECONDS) as queue:
        for _ in bounded("the queue is empty"):
            if not complete(queue):
                break
    wait_until_sealed(archive)
    export(spark, database, lake)
    found = lake.read(spark).select("sequence_number", "message_id").collect()
    assert sorted(row.message_id for row in found) == sorted(accepted)
    assert sorted(row.sequence_number for row in found) == sorted(archive.numbers())
    log = tmp_path / "sent.jsonl"
    log.write_text("".join(f'"{name}"\n' for name in accepted))
    done = audit(spark, database, lake, log)
    assert (done.findings, done.messages, done.expected) == ([], len(accepted), len(accepted))


def test_the_server_removes_what_the_lake_proves_to_have(
    spark: SparkSession, archive: Archive, service: PeeklockProcess, lake: Lake, tmp_path: Path
) -> None:
    httpx.put(f"{service.url}/v1/queues/orders", json={"history": True}, timeout=TIMEOUT_SECONDS).raise_for_status()
    write(service.url, 1, rounds=range(2))
    wait_until_sealed(archive)
    database = Database.from_url(archive.url)
    export(spark, database, lake)
    sealed = len(lake_batches(database, lake))
    young = trimmed(spark, service.url, lake, timedelta(0))
    assert [batch.result for batch in young.batches] == ["too_young"] * sealed
    assert trimmed(spark, service.url, lake, timedelta(days=1)).batches == []
    archive.move_back(2 * HOUR)
    assert {batch.result for batch in trimmed(spark, service.url, lake, timedelta(0)).batches} == {"differs"}
    aged = Lake(tmp_path / "aged")
    export(spark, database, aged)
    write(service.url, 2, rounds=range(1))
    wait_until_sealed(archive)
    done = trimmed(spark, service.url, aged, timedelta(0))
    assert [batch.result for batch in done.batches] == ["trimmed"] * sealed
    assert len(archive.numbers()) == MESSAGES
    assert set(events_by_message(archive)) == archive.numbers()
    assert trimmed(spark, service.url, aged, timedelta(0)).batches == []
    assert audit(spark, database, aged).findings == []
    assert export(spark, database, aged).messages == MESSAGES
    histories = aged.read(spark).select("history.event").collect()
    assert [row.event for row in histories] == [["sent", "delivered", "settled"]] * 3 * MESSAGES


def test_a_batch_that_differs_stays(spark: SparkSession, small_archive: Archive, lake: Lake, tmp_path: Path) -> None:
    service = PeeklockProcess(tmp_path, database_url=small_archive.url, seal_interval_seconds=0.2)
    try:
        httpx.put(f"{service.url}/v1/queues/orders", json={}, timeout=TIMEOUT_SECONDS).raise_for_status()
        write(service.url, 1, rounds=range(1))
        wait_until_sealed(small_archive)
        export(spark, Database.from_url(small_archive.url), lake)
        execute(small_archive.url, "UPDATE archive SET settled_at = settled_at - :by", by=2 * HOUR)
        lost = min(small_archive.numbers())
        execute(small_archive.url, "DELETE FROM archive WHERE sequence_number = :lost", lost=lost)
        results = trimmed(spark, service.url, lake, timedelta(0)).batches
        assert results[0].result == "differs"
        execute(small_archive.url, "UPDATE export_batch SET digest = :other", other="0" * 64)
        assert {batch.result for batch in trimmed(spark, service.url, lake, timedelta(0)).batches} == {"differs"}
        with pytest.raises(ServerUnavailable, match="refuses GET /v1/archive/batches: 404"):
            trimmed(spark, f"{service.url}/nowhere", lake, timedelta(0))
    finally:
        service.end()


def trimmed(spark: SparkSession, url: str, lake: Lake, older_than: timedelta) -> TrimResult:
    """Trim the archive of the server, and return the result."""
    with Server(url, None) as server:
        return trim(spark, server, lake, older_than)


def events_by_message(archive: Archive) -> dict[int, int]:
    """How many events of each message the database has."""
    return dict(execute(archive.url, "SELECT sequence_number, COUNT(*) FROM message_event GROUP BY sequence_number"))


def repeat_in_order(turns: threading.Semaphore, enough: threading.Event) -> Iterator[int]:
    """Numbers of rounds, one for each turn, until it is enough."""
    for number in itertools.count():
        turns.acquire()
        if enough.is_set():
            return
        yield number


def export_times(times: int, spark: SparkSession, database: Database, lake: Lake) -> Iterator[None]:
    """Export until `times` exports have found something; yields before each."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while times:
        assert time.monotonic() < deadline, "nothing is sealed"
        yield
        times -= export(spark, database, lake).batches > 0


def lake_batches(database: Database, lake: Lake) -> list[int]:
    """The batches that are in the lake."""
    return [batch.number for batch in database.batches() if batch.number <= lake.last_batch()]


def wait_until_sealed(archive: Archive) -> None:
    """Until every message that has ended is in a batch."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while execute(archive.url, "SELECT COUNT(*) FROM archive_seal WHERE export_batch IS NULL")[0][0]:
        assert time.monotonic() < deadline, "not sealed"
        time.sleep(POLL_SECONDS * 10)
