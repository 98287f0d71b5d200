"""What people type: each command says what it did, and refuses with a sentence and exit status 2 what it cannot."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from deltalake import DeltaTable
from peeklock_pipeline.broker_tables import BROKER_TABLES
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import write
from peeklock_pipeline.jobs.snapshot import snapshot
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.table_specs import ARCHIVE, MESSAGES
from peeklock_pipeline.tables import DESCRIPTION_PREFIX, FORMAT, ExportPosition
from peeklock_pipeline.transforms.groups import GROUPS
from pyspark.sql import SparkSession

from tests.faults.database_access import execute
from tests.peeklock_process import PeeklockProcess
from tests.pipeline.archive import DAY, NOON, Archive, archived, live
from tests.servers import free_port

RunCommand = Callable[..., tuple[int, str, str]]
RunRefused = Callable[..., str]

COMMAND = Path(sys.executable).with_name("peeklock-pipeline")

SNAPSHOT = (MESSAGES, GROUPS, *(table.spec for table in BROKER_TABLES))

HOUR = 3_600_000_000
KEY = "a key for the tests of this guarded server"


@pytest.mark.quick
def test_a_day_with_the_pipeline(run_command: RunCommand, small_archive: Archive, lake: Lake) -> None:
    small_archive.seal(1, [archived(number) for number in range(1, 11)])
    small_archive.add_to_queue(1, "orders", [live(11)])
    both = ("--database-url", small_archive.url, "--lake", lake.root)
    begun = "This is a new lake, which begins with batch 1."
    assert run_command("export", *both)[:2] == (0, f"10 messages in 1 batch went into {lake.root}. {begun}\n")
    code, out, _ = run_command("export", *both, "--json")
    assert (code, json.loads(out)["messages"]) == (0, 0)
    code, out, _ = run_command("snapshot", *both)
    assert (code, out.startswith("1 message from queues at ")) == (0, True)
    code, out, _ = run_command("audit", *both)
    assert (code, out.partition(":")[0]) == (0, "No message is lost or duplicated")
    assert "11 accepted = 1 live + 0 dead-lettered + 10 completed" in out
    assert run_command("compact", "--lake", lake.root)[:2] == (
        0,
        "1 file before, 1 now; `vacuum` removes the old ones later.\n",
    )
    assert run_command("vacuum", "--lake", lake.root)[1] == f"Removed 0 files with 0 bytes from {lake.root}.\n"
    code, out, _ = run_command("retention", "--lake", lake.root, "--older-than", "0d", "--queue", "billing", "--json")
    assert (code, json.loads(out)["messages"]) == (0, 0)


def test_an_audit_that_finds_something_names_it_and_ends_with_1(
    run_command: RunCommand, small_archive: Archive, lake: Lake
) -> None:
    small_archive.seal(1, [archived(1), archived(2)])
    both = ("--database-url", small_archive.url, "--lake", lake.root)
    run_command("export", *both)
    again = Database.from_url(small_archive.url).read(1, 1).slice(0, 1)
    lake.append(ARCHIVE, list(write(again, lake.directory(ARCHIVE), ARCHIVE)))
    code, out, _ = run_command("audit", *both)
    assert (code, out.splitlines()[:2]) == (1, [
        "Message id-1 (sequence number 1, queue orders) occurs 2 times: completed.",
        "Batch 1 has 3 messages in the lake, but was sealed with 2.",
    ])  # fmt: skip
    code, out, _ = run_command("audit", *both, "--json")
    assert (code, json.loads(out)["findings"][0]["message_id"]) == (1, "id-1")


@pytest.mark.parametrize("command", ["export", "snapshot", "audit"])
@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("nonsense", "A database URL looks like"),
        ("postgresql://host", "names no database"),
        ("sqlite:////nowhere/at/all.db", "The database /nowhere/at/all.db cannot be read"),
        ("postgresql://anna:geheim@127.0.0.1:{port}/peeklock", "cannot be read"),
        ("mysql://anna:geheim@127.0.0.1:{port}/peeklock", "cannot be read"),
    ],
)
def test_a_database_that_cannot_be_read(
    run_refused: RunRefused,
    small_archive: Archive,
    lake: Lake,
    spark: SparkSession,
    command: str,
    url: str,
    sentence: str,
) -> None:
    begun(small_archive, lake)
    stderr = run_refused(command, "--database-url", url.format(port=free_port()), "--lake", lake.root)
    assert sentence in stderr
    assert "geheim" not in stderr
    assert len(lake.archive_table().file_uris()) == 1


def test_a_database_without_an_archive(run_refused: RunRefused, lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    stderr = run_refused("export", "--database-url", f"sqlite:///{tmp_path}/empty.db", "--lake", lake.root)
    assert "has no sealed archive" in stderr
    assert not Path(str(lake.root)).exists()


@pytest.mark.parametrize("command", ["audit", "compact", "vacuum", "retention", "trim"])
def test_a_lake_that_is_not_there(
    run_refused: RunRefused, small_archive: Archive, tmp_path: Path, command: str
) -> None:
    more = {"audit": ["--database-url", small_archive.url], "retention": ["--older-than", "1d"]}.get(command, [])
    assert "is not a lake" in run_refused(command, "--lake", tmp_path / "none", *more)
    assert not (tmp_path / "none").exists()


def test_what_is_no_lake_is_left_alone(run_refused: RunRefused, small_archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter.txt").touch()
    export = ("export", "--database-url", small_archive.url, "--lake")
    assert "is a file; a lake is a directory" in run_refused(*export, tmp_path / "file")
    assert "is not a lake and has other files in it" in run_refused(*export, tmp_path / "home")
    assert [file.name for file in (tmp_path / "home").iterdir()] == ["letter.txt"]


def test_a_lake_of_a_newer_version(run_refused: RunRefused, small_archive: Archive, lake: Lake) -> None:
    begun(small_archive, lake)
    lake.archive_table().alter.set_table_description(f"{DESCRIPTION_PREFIX}{FORMAT + 1}")
    version = DeltaTable(str(lake.directory(ARCHIVE))).version()
    stderr = run_refused("export", "--database-url", small_archive.url, "--lake", lake.root)
    assert f"was written by a newer peeklock-pipeline (format {FORMAT + 1}; this one knows {FORMAT})" in stderr
    assert DeltaTable(str(lake.directory(ARCHIVE))).version() == version


def test_a_table_of_another_program_and_a_broken_one(
    run_refused: RunRefused, small_archive: Archive, lake: Lake
) -> None:
    begun(small_archive, lake)
    export = ("export", "--database-url", small_archive.url, "--lake", lake.root)
    lake.archive_table().alter.set_table_description("Grandmother's recipes")
    assert "peeklock-pipeline did not write it" in run_refused(*export)
    for commit in Path(f"{lake.directory(ARCHIVE)}/_delta_log").iterdir():
        commit.write_text("{")
    assert "cannot be read as a Delta table" in run_refused(*export)


def test_what_a_crash_left_half_written_is_no_hindrance(
    run_command: RunCommand, small_archive: Archive, lake: Lake
) -> None:
    small_archive.seal(1, [archived(number) for number in range(1, 11)])
    rows = Database.from_url(small_archive.url).read(1, 1).slice(0, 5)
    [left] = write(rows, lake.directory(ARCHIVE), ARCHIVE)  # and no commit
    code, out, _ = run_command("export", "--database-url", small_archive.url, "--lake", lake.root, "--json")
    assert (code, json.loads(out)["messages"]) == (0, 10)
    assert not any(uri.endswith(left.path) for uri in lake.archive_table().file_uris())


def test_without_java_a_job_is_refused_with_a_sentence_and_metrics(
    small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    begun(small_archive, lake)
    command = [COMMAND, "compact", "--lake", str(lake.root), "--metrics-directory", str(tmp_path)]
    nowhere = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=nowhere, capture_output=True, text=True, check=False)
    sentence = f"Spark needs Java 17, but JAVA_HOME is {tmp_path}, which has no bin/java. Install it, for example with "
    sentence += "apt-get install openjdk-17-jre-headless.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence)
    [metrics] = tmp_path.glob("peeklock_pipeline_compact_*.prom")
    assert re.search(r"^peeklock_pipeline_success\{.*\} 0.0$", metrics.read_text(), re.MULTILINE)
    done = subprocess.run([*command, "--debug"], env=nowhere, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("Traceback (most recent call last)")
    assert (done.returncode, done.stderr.endswith(sentence)) == (2, True)


def test_a_filter_with_an_unknown_column_is_refused_in_one_line(
    run_refused: RunRefused, small_archive: Archive, lake: Lake
) -> None:
    begun(small_archive, lake)
    assert "`qeue` cannot be resolved" in run_refused(
        "replay", "--lake", lake.root, "--to", "again", "--where", "qeue = 'a'", "--plan"
    )


class NoRole(BaseHTTPRequestHandler):
    """The metadata of a machine that has no role."""

    def do_PUT(self) -> None:
        self.send_error(403)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_an_object_store_without_credentials_is_refused_with_one_line(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), NoRole) as machine:
        thread = threading.Thread(target=machine.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        role = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{machine.server_port}", "HOME": str(tmp_path)}
        command = [COMMAND, "vacuum", "--lake", "s3://bucket/lake", "--storage-option", "AWS_REGION=eu-central-1"]
        done = subprocess.run(command, env=role, capture_output=True, text=True, check=False)
        machine.shutdown()
        thread.join()
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"s3://bucket/lake cannot be read or written: .*loading credentials.*\n", done.stderr)


def test_a_snapshot_of_a_clock_that_was_ahead_can_be_replaced(
    run_command: RunCommand, run_refused: RunRefused, spark: SparkSession, small_archive: Archive, lake: Lake
) -> None:
    ahead = datetime(2999, 1, 1, tzinfo=UTC)
    small_archive.add_to_queue(1, "orders", [live(11, group_id="a")])
    snapshot(spark, Database.from_url(small_archive.url), lake, ahead)
    command = ("snapshot", "--database-url", small_archive.url, "--lake", lake.root)
    assert run_refused(*command).endswith("If the clock of its machine was ahead, run this with --replace-later.\n")

    for again in ([*command, "--replace-later"], command):
        code, out, err = run_command(*again, "--json")
        assert code == 0, err
        done = json.loads(out)
        found = {row["taken_at"] for spec in SNAPSHOT for row in lake.read(spark, spec).toArrow().to_pylist()}
        assert found == {datetime.fromisoformat(done["taken_at"])}
        assert done["tables"].keys() == {spec.name for spec in SNAPSHOT}


# ---- trim ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded_server(small_archive: Archive, tmp_path: Path) -> Iterator[PeeklockProcess]:
    """A server of this archive that wants keys."""
    running = PeeklockProcess(tmp_path, database_url=small_archive.url, bootstrap_key=KEY)
    yield running
    running.end()


def test_a_trim_shows_its_key_and_ends_with_1_where_a_batch_differs(
    run_command: RunCommand,
    small_archive: Archive,
    lake: Lake,
    guarded_server: PeeklockProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PEEKLOCK_API_KEY", KEY)
    trim = exported(run_command, small_archive, lake, guarded_server, batches=3)
    small_archive.delete_message(20)  # so the server refuses its second batch
    execute(small_archive.url, "UPDATE export_batch SET digest = :other WHERE number = 3", other="0" * 64)

    done = run_command(*trim)
    again = run_command(*trim, "--json")
    monkeypatch.delenv("PEEKLOCK_API_KEY")
    given = run_command(*trim, "--api-key", KEY)

    stays = [f"Batch {number} stays: lake and server do not have the messages that were sealed." for number in (2, 3)]
    assert done == (1, "\n".join([*stays, "Removed 3 messages in 1 batch from the server.\n"]), "")
    assert (again[0], [batch["result"] for batch in json.loads(again[1])["batches"]]) == (1, ["differs", "differs"])
    assert given == (1, "\n".join([*stays, "Removed 0 messages in 0 batches from the server.\n"]), "")
    assert small_archive.numbers() == {21, 22, 30, 31, 32}


@pytest.mark.nightly
def test_a_trim_where_nothing_differs_ends_with_0(
    run_command: RunCommand,
    small_archive: Archive,
    lake: Lake,
    guarded_server: PeeklockProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PEEKLOCK_API_KEY", KEY)
    trim = exported(run_command, small_archive, lake, guarded_server, batches=1)

    assert run_command(*trim)[:2] == (0, "Removed 3 messages in 1 batch from the server.\n")
    assert run_command(*trim)[:2] == (0, "Removed 0 messages in 0 batches from the server.\n")


def test_a_server_that_does_not_know_the_key_or_denies_it_the_right(
    run_command: RunCommand,
    run_refused: RunRefused,
    small_archive: Archive,
    lake: Lake,
    guarded_server: PeeklockProcess,
) -> None:
    trim = exported(run_command, small_archive, lake, guarded_server, batches=1)
    asked = {"principal": "reader", "rights": ["browse"]}
    made = httpx.post(
        f"{guarded_server.url}/v1/keys", json=asked, headers={"authorization": f"Bearer {KEY}"}, timeout=60
    )
    reader = made.raise_for_status().json()["secret"]

    sentence = f"{guarded_server.url} refuses GET /v1/archive/batches: 401, it requires a valid API key: --api-key, "
    assert run_refused(*trim).startswith(sentence)
    assert run_refused(*trim, "--api-key", "x" * 32).startswith(sentence)
    assert run_refused(*trim, "--api-key", reader).startswith(
        f"{guarded_server.url} refuses POST /v1/archive/trim: 403 forbidden"
    )
    assert "not a key" in run_refused(*trim, "--api-key", "schlüssel")
    assert small_archive.numbers() == {10, 11, 12}


def exported(
    run_command: RunCommand, archive: Archive, lake: Lake, server: PeeklockProcess, batches: int
) -> tuple[object, ...]:
    """Bring batches of three messages, old enough to be trimmed, into the lake; the command that trims them."""
    then = int(time.time() * 1_000_000) - 2 * HOUR
    for number in range(1, batches + 1):
        rows = [archived(number * 10 + n, settled_at=then, remove_at=then + 30 * DAY) for n in range(3)]
        archive.seal(number, rows, sealed_at=then)
    assert run_command("export", "--database-url", archive.url, "--lake", lake.root)[0] == 0
    return "trim", "--lake", lake.root, "--url", server.url, "--older-than", "1h"


def test_a_server_that_is_not_there_or_is_none(run_refused: RunRefused, small_archive: Archive, lake: Lake) -> None:
    begun(small_archive, lake)
    trim = ("trim", "--lake", lake.root, "--url")
    assert "No answer from" in run_refused(*trim, f"http://127.0.0.1:{free_port()}")
    assert "The URL of a server begins with http" in run_refused(*trim, "nonsense")
    assert "The URL of a server begins with http" in run_refused(*trim, "http://127.0.0.1:none")


def test_an_age_that_is_none(run_refused: RunRefused, small_archive: Archive, lake: Lake) -> None:
    begun(small_archive, lake)
    assert "An age is a number and a unit" in run_refused("retention", "--lake", lake.root, "--older-than", "soon")
    assert "may belong to a running export" in run_refused("vacuum", "--lake", lake.root, "--older-than", "1s")


def begun(archive: Archive, lake: Lake) -> None:
    """A lake with one message in it."""
    archive.seal(1, [archived(1)])
    files = list(write(Database.from_url(archive.url).read(1, 1), lake.directory(ARCHIVE), ARCHIVE))
    assert lake.add_batches(files, ExportPosition(), ExportPosition(1, NOON + 1), 1)
