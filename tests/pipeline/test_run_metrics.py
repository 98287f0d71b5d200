"""Each run of a job writes its metrics for the node exporter and pushes them, and neither can fail the job."""

from __future__ import annotations

import base64
import errno
import fcntl
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent

import pytest
import typer
import typer.main
from peeklock_pipeline import cli
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import DataFile, write
from peeklock_pipeline.job_app import OPTIONS, JobApp
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.loopback import direct_mounts
from peeklock_pipeline.run_metrics import (
    METRICS,
    PREFIX,
    RunMetrics,
    current_run,
    lake_label,
    measure,
    push,
    update_of,
    write_file,
)
from peeklock_pipeline.sending import ANSWER_SECONDS, http_client
from peeklock_pipeline.table_specs import ARCHIVE
from peeklock_pipeline.tables import ExportPosition
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from tests.faults.database_access import execute
from tests.pipeline.archive import NOON, Archive, archived
from tests.servers import free_port

RunCommand = Callable[..., tuple[int, str, str]]

HOUR = 3_600_000_000
TIMEOUT_SECONDS = 60.0


@dataclass
class Gateway:
    """A Pushgateway that records what is pushed to it, and answers with this status."""

    url: str = ""
    status: int = 200
    pushed: list[tuple[str, str, str]] = field(default_factory=list)
    authorization: str | None = None


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    found = Gateway()

    class Handler(BaseHTTPRequestHandler):
        """Records a push."""

        def do_POST(self) -> None:
            found.authorization = self.headers["authorization"]
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            found.pushed.append((self.command, self.path, body))
            self.send_response(found.status)
            self.send_header("location", found.url)
            self.end_headers()
            self.wfile.write(b"pushed metrics are inconsistent")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of the textfile collector."""
    (tmp_path / "metrics").mkdir()
    return tmp_path / "metrics"


def samples(text: str) -> dict[str, tuple[dict[str, str], float]]:
    """Labels and value of each metric in a text, by its name without prefix."""
    return {
        sample.name.removeprefix(PREFIX): (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def written(directory: Path, command: str) -> dict[str, float]:
    """The values in the only file of a command."""
    [file] = directory.glob(f"{PREFIX}{command}_????????.prom")
    return {name: value for name, (_, value) in samples(file.read_bytes().decode()).items()}


def test_a_run_writes_what_it_did(run_command: RunCommand, small_archive: Archive, lake: Lake, directory: Path) -> None:
    small_archive.seal(1, [archived(1), archived(2)])
    begun = time.time()
    both = ("--database-url", small_archive.url, "--lake", lake.root, "--metrics-directory", directory)
    assert run_command("export", *both)[0] == 0
    values = written(directory, "export")
    moments = {name: values.pop(name) for name in list(values) if name.endswith("timestamp_seconds")}
    assert values.pop("duration_seconds") > 0
    assert values == {"success": 1, "messages": 2, "batches": 1, "files": 1, "missed_messages": 0} | {
        "archive_retention_seconds": 30 * 86400 - 1 / 1_000_000
    }
    assert moments.keys() == {
        "end_timestamp_seconds", "last_success_timestamp_seconds", "exported_until_timestamp_seconds",
    }  # fmt: skip
    assert begun <= moments["exported_until_timestamp_seconds"] <= moments["end_timestamp_seconds"] <= time.time()
    [file] = directory.iterdir()
    assert {tuple(labels.items()) for labels, _ in samples(file.read_text()).values()} == {
        (("command", "export"), ("lake", str(lake.root)))
    }


def test_a_refused_run_keeps_the_last_success_and_says_since_when_batches_wait(
    run_command: RunCommand, small_archive: Archive, lake: Lake, directory: Path
) -> None:
    small_archive.seal(1, [archived(1)])
    both = ("--database-url", small_archive.url, "--lake", lake.root, "--metrics-directory", directory)
    assert run_command("export", *both)[0] == 0
    first = written(directory, "export")
    small_archive.seal(2, [archived(2)])
    small_archive.seal(3, [archived(3)])
    small_archive.delete_message(2)
    execute(small_archive.url, "UPDATE export_batch SET remove_at = sealed_at + :kept WHERE number = 3", kept=30 * HOUR)
    assert run_command("export", *both)[0] == 2
    second = written(directory, "export")
    assert (second["success"], second["messages"]) == (0, 1)
    assert second["last_success_timestamp_seconds"] == first["last_success_timestamp_seconds"]
    assert second["end_timestamp_seconds"] > first["end_timestamp_seconds"]
    assert second["exported_until_timestamp_seconds"] == (NOON + 2) / 1_000_000
    assert second["archive_retention_seconds"] == 30 * 3600


def test_a_run_that_learns_nothing_of_the_archive_leaves_what_was_known_of_it(
    run_command: RunCommand, small_archive: Archive, lake: Lake, directory: Path
) -> None:
    small_archive.seal(1, [archived(1)])
    rest = ("--lake", lake.root, "--metrics-directory", directory)
    run_command("export", "--database-url", small_archive.url, *rest)
    first = written(directory, "export")
    assert run_command("export", "--database-url", "sqlite:////nowhere/at/all.db", *rest)[0] == 2
    second = written(directory, "export")
    assert second["success"] == 0
    assert second["exported_until_timestamp_seconds"] == first["exported_until_timestamp_seconds"]


def test_only_what_was_removed_since_the_lake_began_is_missed(
    run_command: RunCommand, small_archive: Archive, lake: Lake, directory: Path
) -> None:
    both = ("--database-url", small_archive.url, "--lake", lake.root, "--metrics-directory", directory)
    found: list[float] = []
    for removed in (1, 3, 5):
        for number in (removed, removed + 1):
            small_archive.seal(number, [archived(number)])
        small_archive.remove(removed, "expired")
        assert "1 more were removed by their retention" in run_command("export", *both)[1]
        found.append(written(directory, "export")["missed_messages"])
    assert found == [0, 1, 2]
    assert lake.missed() == {3: 1, 5: 1}


class KilledLake(Lake):
    """A lake whose export is killed directly after its commit."""

    def add_batches(self, files: Sequence[DataFile], after: ExportPosition, last: ExportPosition, begun: int) -> bool:
        assert super().add_batches(files, after, last, begun)
        raise Killed


class Killed(BaseException):
    """The process ends here."""


def test_what_a_killed_export_recorded_as_missed_is_counted_by_the_next_one(
    run_command: RunCommand, spark: SparkSession, small_archive: Archive, lake: Lake, directory: Path
) -> None:
    both = ("--database-url", small_archive.url, "--lake", lake.root, "--metrics-directory", directory)
    small_archive.seal(1, [archived(1)])
    assert run_command("export", *both)[0] == 0
    for number in (2, 3):
        small_archive.seal(number, [archived(number)])
    small_archive.remove(2, "expired")
    with pytest.raises(Killed):
        export(spark, Database.from_url(small_archive.url), KilledLake(lake.root))
    assert lake.missed() == {2: 1}
    assert run_command("export", *both)[1].startswith("0 messages in 0 batches")
    assert written(directory, "export")["missed_messages"] == 1


def test_what_was_missed_is_counted_also_if_the_export_then_fails(
    run_command: RunCommand, small_archive: Archive, lake: Lake, directory: Path
) -> None:
    both = ("--database-url", small_archive.url, "--lake", lake.root, "--metrics-directory", directory)
    small_archive.seal(1, [archived(1)])
    assert run_command("export", *both)[0] == 0
    lake.record_missed({2: 3})
    lake.record_missed({2: 3})
    for number in (2, 3):
        small_archive.seal(number, [archived(number)])
    small_archive.delete_message(3)
    assert run_command("export", *both)[0] == 2
    assert written(directory, "export")["missed_messages"] == 3


def test_findings_of_an_audit_are_counted_and_no_failure(
    run_command: RunCommand, small_archive: Archive, lake: Lake, directory: Path
) -> None:
    small_archive.seal(1, [archived(1), archived(2)])
    both = ("--database-url", small_archive.url, "--lake", lake.root)
    run_command("export", *both)
    again = Database.from_url(small_archive.url).read(1, 1).slice(0, 1)
    lake.append(ARCHIVE, list(write(again, lake.directory(ARCHIVE), ARCHIVE)))
    assert run_command("audit", *both, "--metrics-directory", directory)[0] == 1
    values = written(directory, "audit")
    assert (values["success"], values["findings"], values["batches"]) == (1, 2, 1)
    assert run_command("audit", *both, "--from-scratch", "--metrics-directory", directory)[0] == 1
    assert written(directory, "audit_from_scratch")["findings"] == 2
    assert written(directory, "audit") == values


def test_a_run_is_pushed_under_its_command_and_lake(
    run_command: RunCommand, small_archive: Archive, lake: Lake, directory: Path, gateway: Gateway
) -> None:
    small_archive.seal(1, [archived(1)])
    both = ("--database-url", small_archive.url, "--lake", lake.root)
    run_command("export", *both, "--push-gateway", gateway.url, "--metrics-directory", directory)
    [(method, path, body)] = gateway.pushed
    encoded = base64.urlsafe_b64encode(str(lake.root).encode()).decode()
    assert (method, path) == ("POST", f"/metrics/job/peeklock-pipeline/command/export/lake@base64/{encoded}")
    [file] = directory.iterdir()
    assert samples(body) == samples(file.read_text())


def test_the_environment_sets_both_for_every_job(
    run_command: RunCommand,
    small_archive: Archive,
    lake: Lake,
    directory: Path,
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PEEKLOCK_PIPELINE_METRICS_DIRECTORY", str(directory))
    monkeypatch.setenv("PEEKLOCK_PIPELINE_PUSH_GATEWAY", gateway.url)
    small_archive.seal(1, [archived(1)])
    run_command("export", "--database-url", small_archive.url, "--lake", lake.root)
    run_command("compact", "--lake", lake.root)
    run_command("vacuum", "--lake", f"{lake.root}/elsewhere")
    assert sorted(file.name.split("_")[2] for file in directory.iterdir()) == ["compact", "export", "vacuum"]
    assert [path.split("/")[5] for _, path, _ in gateway.pushed] == ["export", "compact", "vacuum"]
    assert written(directory, "compact")["files"] == 1
    assert written(directory, "vacuum")["success"] == 0


def test_every_command_has_the_options() -> None:
    commands = typer.main.get_command(cli.app).commands  # pyright: ignore[reportAttributeAccessIssue]
    for name, command in commands.items():
        assert OPTIONS.keys() <= {parameter.name for parameter in command.params}, name


@pytest.mark.parametrize("end", [RuntimeError("a fault"), typer.Abort()])
def test_a_run_that_breaks_off_has_failed(directory: Path, end: BaseException) -> None:
    app = JobApp()

    @app.command()
    def breaks_off() -> None:
        measure(messages=3)
        raise end

    with pytest.raises(type(end)):
        app(["--metrics-directory", str(directory)], standalone_mode=False)
    values = written(directory, "breaks_off")
    assert (values["success"], values["messages"]) == (0, 3)
    assert "last_success_timestamp_seconds" not in values


@pytest.mark.parametrize(
    "end",
    [
        *(kind("a fault") for kind in (EOFError, BrokenPipeError, OSError, RuntimeError, MemoryError)),
        BrokenPipeError(errno.EPIPE, "a fault"),  # as the system raises it
    ],
    ids=repr,
)
def test_no_exception_of_a_job_ends_it_as_findings_do(
    directory: Path, end: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    app = JobApp(pretty_exceptions_enable=False)

    @app.command()
    def breaks_off() -> None:
        raise end

    sentence = f"This job crashed: {type(end).__name__}: {end}. Run it again with --debug for the traceback.\n"
    for options in ([], ["--debug"]):
        with pytest.raises(SystemExit) as ended:
            app.run(["--metrics-directory", str(directory), *options])
        captured = capfd.readouterr()
        assert (ended.value.code, captured.out) == (70, "")
        traceback, _, _ = captured.err.rpartition(sentence)
        assert traceback.startswith("Traceback (most recent call last)" if options else "")
        assert (traceback == "") == (not options)
    assert written(directory, "breaks_off")["success"] == 0


def test_a_job_that_is_ended_by_a_signal_has_failed_and_says_so(directory: Path) -> None:
    program = """
        from time import sleep
        from peeklock_pipeline.job_app import JobApp

        app = JobApp()

        @app.command()
        def works():
            print("begun", flush=True)
            sleep(300)

        app()
    """
    command = [sys.executable, "-c", dedent(program), "--metrics-directory", directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (process.returncode, err) == (143, "This job was ended by SIGTERM. Run it again.\n")
    assert written(directory, "works")["success"] == 0


@pytest.mark.parametrize("status", [400, 302, 500])
def test_a_push_that_is_refused_is_reported_and_fails_no_job(
    run_command: RunCommand, small_archive: Archive, lake: Lake, gateway: Gateway, status: int
) -> None:
    gateway.status = status
    small_archive.seal(1, [archived(1)])
    url = gateway.url.replace("//", "//pusher:geheim@")
    code, out, err = run_command(
        "export", "--database-url", small_archive.url, "--lake", lake.root, "--push-gateway", url
    )
    assert (code, out.partition(" in ")[0]) == (0, "1 message")
    host = gateway.url.removeprefix("http://")
    assert err == (
        f"The metrics of this run were not pushed to {host}: it answers {status} pushed metrics are inconsistent\n"
    )
    assert len(gateway.pushed) == 1
    assert gateway.authorization == f"Basic {base64.b64encode(b'pusher:geheim').decode()}"


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "http://", "gopher://host", "http://[::1", "http://a b"])
def test_a_gateway_that_cannot_be_reached_is_reported(url: str) -> None:
    url = url.format(port=free_port())
    problem = push(RunMetrics("export", "/srv/lake", {"success": 1}), url)
    assert problem is not None
    assert problem.startswith(f"The metrics of this run were not pushed to {url}: ")


def test_a_server_on_this_host_is_reached_without_a_proxy(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert push(RunMetrics("export", "/srv/lake", {"success": 1}), gateway.url) is None
    with http_client(gateway.url, None, ANSWER_SECONDS) as http:
        assert http.post("/v1", content=b"text").is_success


@pytest.mark.parametrize(
    ("url", "mounts"),
    [
        ("http://localhost:8080", ["all://localhost"]),
        ("https://broker.localhost", ["all://broker.localhost"]),
        ("http://127.1.2.3", ["all://127.1.2.3"]),
        ("http://[::1]:8080", ["all://[::1]"]),
        ("http://broker.test", []),
        ("http://10.0.0.1", []),
    ],
)
def test_a_host_is_this_one_by_its_name_or_address(url: str, mounts: list[str]) -> None:
    assert [*direct_mounts(url)] == mounts


def test_a_gateway_that_never_answers_does_not_hold_the_job() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        problem = push(RunMetrics("export", "/srv/lake", {"success": 1}), url, seconds=0.05)
    assert problem == f"The metrics of this run were not pushed to {url}: no answer within 0.05 seconds"


@pytest.mark.parametrize("password", ["ge/heim", "ge#heim", "ge?heim"])
def test_the_password_of_a_gateway_is_not_printed(password: str) -> None:
    problem = push(RunMetrics("export", "/srv/lake", {"success": 1}), f"http://pusher:{password}@gateway:9091")
    assert problem == "The metrics of this run were not pushed to gateway:9091: it is no valid URL"


def test_a_refusal_without_an_end_is_not_read_to_its_end() -> None:
    ended = threading.Event()

    def answer(server: socket.socket) -> None:
        with server.accept()[0] as client:
            client.recv(65536)
            client.sendall(b"HTTP/1.1 500 Oh\r\n\r\n\x1b[2J")
            with suppress(OSError):
                while not ended.is_set():
                    client.sendall(b"no\n" * 10_000)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, args=[server])
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        problem = push(RunMetrics("export", "/srv/lake", {"success": 1}), url)
        ended.set()
        thread.join()
    assert problem is not None
    assert problem.startswith(f"The metrics of this run were not pushed to {url}: it answers 500 [2J")
    assert len(problem) < 400
    assert problem.isprintable()


def test_a_directory_that_does_not_exist_is_reported_and_fails_no_job(
    run_command: RunCommand, small_archive: Archive, lake: Lake, tmp_path: Path
) -> None:
    small_archive.seal(1, [archived(1)])
    both = ("--database-url", small_archive.url, "--lake", lake.root)
    code, _, err = run_command("export", *both, "--metrics-directory", tmp_path / "none")
    assert code == 0
    assert err.startswith(f"The metrics of this run were not written to {tmp_path}/none/{PREFIX}export_")


def test_a_damaged_file_of_an_earlier_run_is_reported_and_stays(directory: Path) -> None:
    run = RunMetrics("export", "/srv/lake", {"success": 1})
    (directory / run.file_name()).write_text("no metrics } at all")
    problem = write_file(run, directory)
    assert problem is not None
    assert [file.name for file in directory.iterdir()] == [run.file_name()]


@dataclass(slots=True)
class ObservedMetrics(RunMetrics):
    """Metrics that note whether the run holds the lock of the directory when it writes them."""

    directory: Path = field(kw_only=True)
    locked: bool = False

    def registry(self, earlier: Mapping[str, float] | None = None) -> CollectorRegistry:
        self.locked = is_locked(self.directory)
        return RunMetrics.registry(self, earlier)


def is_locked(directory: Path) -> bool:
    """Whether a run is updating files of this directory."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(opened)
    return False


def test_of_two_runs_that_end_at_once_one_reads_and_writes_before_the_other(directory: Path) -> None:
    run = ObservedMetrics("export", "/srv/lake", {"success": 0}, directory=directory)
    earlier = RunMetrics("export", "/srv/lake", {"success": 1, "last_success_timestamp_seconds": 7})
    file = directory / run.file_name()
    os.mkfifo(file)
    with ThreadPoolExecutor(1) as threads:
        problem = threads.submit(write_file, run, directory)
        with file.open("wb") as pipe:  # as soon as the run reads it
            assert is_locked(directory)
            pipe.write(generate_latest(earlier.registry()))
        assert problem.result() is None
    assert run.locked
    assert not is_locked(directory)
    assert written(directory, "export") == {"success": 0, "last_success_timestamp_seconds": 7}
    assert [found.name for found in directory.iterdir()] == [run.file_name()]


def test_another_run_that_stops_in_its_update_does_not_hold_the_job(directory: Path) -> None:
    with update_of(directory):
        problem = write_file(RunMetrics("export", "/srv/lake", {"success": 1}), directory, seconds=0.05)
    assert problem is not None
    assert problem.endswith(
        ".prom: no answer within 0.05 seconds, because another run locks its directory, or the file system hangs"
    )


def test_another_run_that_stops_in_its_update_does_not_hold_the_process(directory: Path) -> None:
    program = """
        import sys
        from pathlib import Path
        from peeklock_pipeline.run_metrics import RunMetrics, write_file

        print(write_file(RunMetrics("export", "/srv/lake", {"success": 1}), Path(sys.argv[1]), seconds=0.05))
    """
    with update_of(directory):
        printed = subprocess.check_output(
            [sys.executable, "-c", dedent(program), directory], text=True, timeout=TIMEOUT_SECONDS
        )
    assert printed.startswith(f"The metrics of this run were not written to {directory}/")


@pytest.mark.parametrize("name", ["a\nb", "a\rb", 'a"b', "a\\", "a{b}=#", "日本", "a\u2028b", "\udcff", "a" * 5000])
def test_a_lake_of_any_name_keeps_its_metrics_from_run_to_run(directory: Path, name: str) -> None:
    with current_run("export", f"/srv/{name}") as run:
        measure(success=1, messages=3)
    assert write_file(run, directory) is None
    with current_run("export", f"/srv/{name}") as run:
        measure(success=0)
    assert write_file(run, directory) is None
    assert written(directory, "export") == {"success": 0, "messages": 3}


def test_metrics_are_those_of_the_run_that_measures() -> None:
    measure(messages=1)
    with current_run("export", "/srv/lake") as run:
        measure(messages=2)
        with current_run("audit", "/srv/lake") as other:
            measure(findings=3)
        measure(files=4)
    assert (run.values, other.values) == ({"messages": 2, "files": 4}, {"findings": 3})
    assert run.registry().get_sample_value(f"{PREFIX}files", {"command": "export", "lake": "/srv/lake"}) == 4
    assert all(meaning.endswith(".") for meaning in METRICS.values())


def test_a_label_names_the_lake_without_a_password() -> None:
    assert lake_label("s3://key:secret@bucket/lake") == "s3://bucket/lake"
    assert lake_label("s3://key:sec/ret@bucket/lake/") == "s3://bucket/lake"
    assert lake_label("abfss://one@account.dfs.core.windows.net/lake?sig=secret") == (
        "abfss://one@account.dfs.core.windows.net/lake"
    )
    assert lake_label("abfss://one@secret@account/lake") == "abfss://account/lake"
    assert lake_label("s3://bucket/a@b/lake") == "s3://bucket/a@b/lake"
    assert lake_label("s3://bucket/lake?key=secret") == "s3://bucket/lake"
    assert lake_label("s3://bucket/lake#secret") == "s3://bucket/lake"
    assert lake_label("s3://bucket/la#secret?ke") == "s3://bucket/la"
    assert lake_label("s3://[::1/lake") == "s3://[::1/lake"
    assert (
        lake_label("abfss://one@account.dfs.core.windows.net/lake") == "abfss://one@account.dfs.core.windows.net/lake"
    )
    assert lake_label("lake") == str(Path("lake").absolute())
    assert lake_label(None) == ""


def test_the_guide_lists_every_metric_and_what_it_means() -> None:
    guide = (Path(__file__).parents[2] / "docs/pipeline.md").read_text()
    rows = re.findall(rf"^\| `{PREFIX}(\w+)` \| (.+) \|$", guide, re.MULTILINE)
    assert dict(rows) == METRICS
