"""The data source `peeklock` against real databases and a real server: reading, streams and restarts, and sending."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx
import pytest
from peeklock_pipeline import source
from peeklock_pipeline.database import Database
from peeklock_pipeline.jobs.compact import compact
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.refusals import BatchesLost
from peeklock_pipeline.source.options import ReadOptions, WriteOptions
from peeklock_pipeline.source.reading import ArchiveReader
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.peeklock_process import PeeklockProcess
from tests.pipeline.archive import Archive, archived
from tests.pipeline.faulty_proxy import FaultyProxy
from tests.servers import POLL_SECONDS, end_tree

TIMEOUT_SECONDS = 600.0
ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    source.register(spark)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with an embedded database."""
    service = PeeklockProcess(tmp_path_factory.mktemp("server"))
    yield service.url
    service.end()


class Queue:
    """A queue of the server, read over HTTP."""

    def __init__(self, server: str, name: str, **settings: Any) -> None:
        self.server = server
        self.name = name
        httpx.put(f"{server}/v1/queues/{name}", json=settings, timeout=TIMEOUT_SECONDS).raise_for_status()

    def count(self) -> int:
        """How many messages are in it once both tasks have made a request, or a minute has passed."""
        found = 0
        for _ in range(600):
            found = httpx.get(f"{self.server}/v1/queues/{self.name}", timeout=TIMEOUT_SECONDS).json()["counts"][
                "available"
            ]
            if found >= 1000:
                break
            time.sleep(0.1)
        return found

    def messages(self) -> list[dict[str, Any]]:
        """All that is in it, bodies included."""
        found = httpx.post(
            f"{self.server}/v1/queues/{self.name}/messages/receive",
            json={"max_messages": 1000, "mode": "receive_and_delete"},
            timeout=TIMEOUT_SECONDS,
        )
        found.raise_for_status()
        return found.json()["messages"]


def reading(spark: SparkSession, archive: Archive, **options: Any) -> DataFrame:
    return spark.read.format("peeklock").options(databaseUrl=archive.url, **options).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row.sequence_number for row in frame.select("sequence_number").collect())


def filled(archive: Archive, batches: int = 4, rows: int = 3) -> Archive:
    """Fill the archive with batches of messages, numbered from 1; with 3 messages each, batch 2 of 3 has the messages 4
    to 6."""
    for batch in range(1, batches + 1):
        first = (batch - 1) * rows + 1
        archive.seal(batch, [archived(number, body_kind=1, body=b'{"n":1}') for number in range(first, first + rows)])
    return archive


# ---- read ------------------------------------------------------------------------------------------------------------


def test_what_is_sealed_is_read_without_bodies_unless_they_are_asked_for(spark: SparkSession, archive: Archive) -> None:
    filled(archive)

    everything = reading(spark, archive)
    chosen = reading(spark, archive, columns="body, date, sequence_number", fromBatch=3)

    assert numbers(everything) == list(range(1, 13))
    assert "body" not in everything.columns
    assert chosen.columns == ["body", "date", "sequence_number"]
    assert numbers(chosen) == list(range(7, 13))
    assert {bytes(row.body) for row in chosen.collect()} == {b'{"n":1}'}
    assert reading(spark, archive, columns="*").count() == 12


def test_an_archive_without_a_sealed_batch_is_an_empty_table(spark: SparkSession, small_archive: Archive) -> None:
    assert reading(spark, small_archive).count() == 0


def test_batches_that_were_removed_are_passed_over(spark: SparkSession, small_archive: Archive) -> None:
    filled(small_archive).remove(2, "trimmed")

    assert numbers(reading(spark, small_archive)) == [1, 2, 3, *range(7, 13)]


def test_a_batch_that_vanishes_while_it_is_read_is_not_taken_for_an_empty_one(small_archive: Archive) -> None:
    options = ReadOptions.of({"databaseUrl": filled(small_archive).url})
    reader = ArchiveReader(options, options.schema())
    (share,) = reader.partitions()
    small_archive.remove(2, "expired")

    with pytest.raises(BatchesLost, match="held 12 messages and now hold 9: some were removed"):
        list(reader.read(share))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "needs the option databaseUrl"),
        ({"databaseUrl": "oracle://x"}, "this one begins with oracle"),
        ({"columns": ","}, "The option columns has names between commas, or is \\*; ',' has an empty name."),
        ({"columns": "queue,"}, "The option columns has names between commas, or is \\*; 'queue,' has an empty name."),
        ({"columns": "sequence_number,colour"}, "The archive has no column colour. It has sequence_number, queue"),
        ({"from_batch": "1", "fromBatch": "1"}, "from_batch is the old name of fromBatch: set fromBatch alone"),
        ({"fromBatch": "none"}, "The option fromBatch is a number from 1, not 'none'"),
    ],
)
def test_invalid_options_are_refused_with_a_sentence(
    spark: SparkSession, small_archive: Archive, options: dict[str, str], sentence: str
) -> None:
    given = options if "databaseUrl" in options or not options else {"databaseUrl": small_archive.url, **options}

    with pytest.raises(PySparkException, match=sentence):
        spark.read.format("peeklock").options(**given).load()


@pytest.mark.parametrize(
    ("old", "new", "given"),
    [
        ("DATABASE_URL", "databaseUrl", {}),
        ("from_batch", "fromBatch", {"databaseUrl": "sqlite:////tmp/x.db"}),
        ("api_key", "apiKey", {"url": "http://127.0.0.1:1", "queue": "q"}),
    ],
)
def test_the_names_that_options_had_before_are_accepted_with_a_warning(
    old: str, new: str, given: dict[str, str]
) -> None:
    parse = WriteOptions.of if "url" in given else ReadOptions.of
    value = {"fromBatch": "3", "databaseUrl": "sqlite:////tmp/x.db"}.get(new, "secret")

    with pytest.warns(FutureWarning, match=f"The option {old.lower()} of the data source peeklock is now {new}"):
        found = parse({**given, old: value})

    assert found == parse({**given, new.lower(): value})


# ---- readStream ------------------------------------------------------------------------------------------------------


def streamed(spark: SparkSession, place: Archive | Lake, directory: Path, **options: Any) -> StreamingQuery:
    """Run a stream over what is sealed or exported now, from its checkpoint into Parquet, to its end."""
    frame = spark.readStream.format("peeklock").options(**{**options_of(place), **options}).load()
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query = source.begin(lambda: writer.trigger(availableNow=True).start(str(directory / "sink")))
    assert query.awaitTermination(TIMEOUT_SECONDS)
    return query


def options_of(place: Archive | Lake) -> dict[str, str]:
    return {"databaseUrl": place.url} if isinstance(place, Archive) else {"lake": str(place.root)}


def test_a_stream_goes_on_where_its_checkpoint_says(
    spark: SparkSession, small_archive: Archive, tmp_path: Path
) -> None:
    filled(small_archive, batches=5)

    first = streamed(spark, small_archive, tmp_path, maxBatchesPerTrigger=2)
    small_archive.seal(6, [archived(number) for number in (90, 91)])
    second = streamed(spark, small_archive, tmp_path, maxBatchesPerTrigger=2)

    assert [step.numInputRows for step in first.recentProgress if step.numInputRows] == [6, 6, 3]
    assert [step.numInputRows for step in second.recentProgress if step.numInputRows] == [2]
    assert numbers(spark.read.parquet(str(tmp_path / "sink"))) == [*range(1, 16), 90, 91]


def test_a_stream_reports_what_it_can_no_longer_read(
    spark: SparkSession, small_archive: Archive, tmp_path: Path
) -> None:
    filled(small_archive, batches=2)
    streamed(spark, small_archive, tmp_path)
    filled(small_archive := Archive.empty(small_archive.url), batches=4).remove(3, "expired")

    with pytest.raises(PySparkException, match="Batches 3 to 3 with 3 messages were removed"):
        streamed(spark, small_archive, tmp_path)
    streamed(spark, small_archive, tmp_path, failOnDataLoss="false")

    assert numbers(spark.read.parquet(str(tmp_path / "sink"))) == [*range(1, 7), 10, 11, 12]


def test_a_new_stream_begins_with_what_is_still_there(
    spark: SparkSession, small_archive: Archive, tmp_path: Path
) -> None:
    filled(small_archive).remove(1, "trimmed")

    streamed(spark, small_archive, tmp_path)

    assert numbers(spark.read.parquet(str(tmp_path / "sink"))) == list(range(4, 13))


@pytest.mark.nightly
def test_a_stream_is_started_again_where_its_worker_was_late(
    spark: SparkSession, small_archive: Archive, tmp_path: Path
) -> None:
    with worker_late_once(spark, tmp_path):
        streamed(spark, filled(small_archive), tmp_path)

    assert (tmp_path / "late").exists()
    assert numbers(spark.read.parquet(str(tmp_path / "sink"))) == list(range(1, 13))


@contextmanager
def worker_late_once(spark: SparkSession, directory: Path) -> Iterator[None]:
    """Register the source with a Python that first takes longer to ask it for offsets than Spark waits."""
    slow, python = directory / "slow", spark.sparkContext.pythonExec
    once = f'*python_streaming_source_runner*) if [ ! -e "{directory}/late" ]; then touch "{directory}/late"; sleep 12; fi;;'
    slow.write_text(f'#!/bin/sh\ncase "$*" in {once} esac\nexec "{python}" "$@"\n')
    slow.chmod(0o755)
    spark.sparkContext.pythonExec = str(slow)
    source.register(spark)
    spark.sparkContext.pythonExec = python
    yield


@pytest.mark.parametrize("reads_lake", [False, True], ids=["server", "lake"])
def test_a_stream_that_was_killed_amid_a_micro_batch_brings_each_message_once(
    spark: SparkSession, archive: Archive, lake: Lake, tmp_path: Path, reads_lake: bool
) -> None:
    filled(archive, batches=4)
    export(spark, Database.from_url(archive.url), lake)
    place = lake if reads_lake else archive
    killed_amid(
        tmp_path,
        f"""
        from pathlib import Path
        from time import sleep
        from peeklock_pipeline import source
        from peeklock_pipeline.session import open_session

        def slowly(batches):
            for batch in batches:
                yield batch.slice(0, 1)
                if batch["export_batch"][0].as_py() == 3:  # the second micro-batch
                    Path({str(tmp_path / "amid")!r}).touch()
                    sleep(300)
                yield batch.slice(1)

        spark = open_session("local[2]")
        source.register(spark)
        options = dict({options_of(place)!r}, maxBatchesPerTrigger=2)
        frame = spark.readStream.format("peeklock").options(**options).load()
        writer = frame.mapInArrow(slowly, frame.schema).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", {str(tmp_path / "checkpoint")!r}).trigger(availableNow=True)
        source.begin(lambda: writer.start({str(tmp_path / "sink")!r})).awaitTermination()
        """,
    )
    before = numbers(spark.read.parquet(str(tmp_path / "sink")))

    compact(spark, lake)
    lake.archive_table().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    streamed(spark, place, tmp_path)

    assert before == list(range(1, 7))
    assert numbers(spark.read.parquet(str(tmp_path / "sink"))) == list(range(1, 13))


def killed_amid(directory: Path, program: str) -> None:
    """Run a program until it makes the file `amid`, and kill it and its JVM there."""
    with (directory / "program.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", dedent(program)], stdout=log, stderr=log, start_new_session=True
        )
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (directory / "amid").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        end_tree(process.pid, signal.SIGKILL)
        process.wait()
    assert (directory / "amid").exists(), (directory / "program.log").read_text()


# ---- write -----------------------------------------------------------------------------------------------------------


def sent(frame: DataFrame, queue: Queue) -> None:
    frame.write.format("peeklock").options(url=queue.server, queue=queue.name).mode("append").save()


def test_rows_become_messages(spark: SparkSession, server: str) -> None:
    queue = Queue(server, "rows", duplicate_detection_window_seconds=60)
    rows = spark.sql(
        """
        SELECT 'a' AS message_id, 'plain "text"' AS body, NULL AS content_type, 7 AS priority, 'blue' AS group_id,
               map('colour', 'red') AS properties, 'one' AS subject
        UNION ALL SELECT 'b', '{"n":  1}', 'application/json', NULL, NULL, NULL, NULL
        UNION ALL SELECT 'c', NULL, NULL, NULL, NULL, NULL, NULL
        """
    )

    sent(rows, queue)
    sent(spark.sql("SELECT 'd' AS message_id, X'00FF' AS body, '{\"n\": 1.5}' AS properties"), queue)

    found = {message["message_id"]: message for message in queue.messages()}
    assert sorted(found) == ["a", "b", "c", "d"]
    assert (found["a"]["body"], found["a"]["priority"], found["a"]["group_id"]) == ('plain "text"', 7, "blue")
    assert (found["a"]["properties"], found["a"]["subject"]) == ({"colour": "red"}, "one")
    assert (found["b"]["body"], found["b"]["content_type"]) == ({"n": 1}, "application/json")
    assert "body" not in found["c"]
    assert (found["d"]["body_base64"], found["d"]["properties"]) == ("AP8=", {"n": 1.5})


def test_a_task_that_is_run_again_sends_nothing_twice(spark: SparkSession, server: str, tmp_path: Path) -> None:
    queue = Queue(server, "retried", duplicate_detection_window_seconds=60)
    rows = spark.range(0, 2000, numPartitions=2).selectExpr("concat(id % 700, repeat(' ', 1000)) AS body")

    spark.conf.set(ROWS_AT_ONCE, 100)
    try:
        sent(rows.mapInArrow(failing_once(queue, tmp_path / "failed"), rows.schema), queue)
    finally:
        spark.conf.unset(ROWS_AT_ONCE)

    bodies = [message["body"] for _ in range(4) for message in queue.messages()]
    assert (tmp_path / "failed").exists()
    assert sorted(map(int, bodies)) == sorted(number % 700 for number in range(2000))


def failing_once(queue: Queue, mark: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Pass batches on, but fail once, in a task that has nearly finished and has sent some rows."""

    def pass_batches(batches: Iterator[Any]) -> Iterator[Any]:
        for done, batch in enumerate(batches, 1):
            if done == 10 and not mark.exists() and queue.count() >= 1000:
                mark.touch()
                raise RuntimeError("as if the executor had died")
            yield batch

    return pass_batches


def test_a_micro_batch_that_is_run_again_sends_nothing_twice(
    spark: SparkSession, small_archive: Archive, server: str, tmp_path: Path
) -> None:
    queue = Queue(server, "streamed", duplicate_detection_window_seconds=60)
    filled(small_archive, batches=2)

    def run() -> None:
        frame = spark.readStream.format("peeklock").options(databaseUrl=small_archive.url).load()
        rows = frame.selectExpr("concat('was ', sequence_number) AS body", "properties")
        writer = rows.writeStream.format("peeklock").options(url=queue.server, queue=queue.name)
        query = source.begin(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start)
        assert query.awaitTermination(TIMEOUT_SECONDS)

    run()
    for commit in (tmp_path / "commits").iterdir():  # as if it had died before it could say that all was sent
        commit.unlink()
    run()

    assert sorted(message["body"] for message in queue.messages()) == [f"was {number}" for number in range(1, 7)]


def test_a_request_to_a_busy_server_is_repeated(spark: SparkSession, server: str) -> None:
    queue = Queue(server, "busy", duplicate_detection_window_seconds=60)
    with FaultyProxy(server, [429, 503, 502, "cut"]) as front:
        rows = spark.range(10).selectExpr("CAST(id AS STRING) AS message_id").coalesce(1)
        rows.write.format("peeklock").options(url=front.url, queue="busy").mode("append").save()

    assert front.refusals == []
    assert len(queue.messages()) == 10


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("SELECT 1 AS colour", "A message has no colour; the columns that are sent are message_id, body"),
        ("SELECT 1 AS body", "The column body is sent from string or binary, not from int. Make it JSON by to_json"),
        ("SELECT map('a', array(1)) AS properties", "map of string to a string, a number or a boolean"),
        ("SELECT 'x' AS body, 'application/json' AS content_type", "The body of a message should be JSON"),
        ("SELECT 'x' AS body, 12 AS priority", "invalid-request"),
    ],
)
def test_rows_that_are_no_messages_are_refused(spark: SparkSession, server: str, query: str, sentence: str) -> None:
    queue = Queue(server, "strict", duplicate_detection_window_seconds=60)

    with pytest.raises(PySparkException, match=sentence):
        sent(spark.sql(query), queue)


def test_a_queue_that_would_store_duplicates_is_refused(spark: SparkSession, server: str) -> None:
    queue = Queue(server, "careless")

    with pytest.raises(PySparkException, match="The queue careless does not detect duplicates"):
        sent(spark.range(1).selectExpr("'x' AS body"), queue)


def test_a_queue_is_not_overwritten(spark: SparkSession, server: str) -> None:
    rows = spark.range(1).selectExpr("'x' AS body")

    with pytest.raises(PySparkException, match=r"A queue cannot be overwritten: use mode\('append'\)"):
        rows.write.format("peeklock").options(url=server, queue="any").mode("overwrite").save()
