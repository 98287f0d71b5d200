"""The conditions for the start of a server, and its refusals."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import app.main  # noqa: F401 - imported once, not by each fork of `run_command`
from app.settings import Settings
from tests.cli.conftest import run_command
from tests.peeklock_process import PeeklockProcess, run_peeklock

pytestmark = pytest.mark.full

LONG = "a" * 300
"""A name that no file and no host can have."""

SECRET = "pk_an-operators-own-secret-of-some-length"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"cors_origins": "https://shop.example/"}, "https://shop.example/ is not an origin"),
        ({"sqs_secret": "s" * 31}, "PEEKLOCK_SQS_SECRET: Value error, The secret has at least 32 characters"),
        ({"sqs_url": "mq.example"}, "mq.example is not the URL of a server"),
        ({"sqs_url": "https://mq.example:8443x"}, "https://mq.example:8443x is not the URL of a server"),
        ({"sqs_url": "https://mq.example/?a"}, "A root path begins with a slash"),
        ({"sqs_url": "https://mq.example/v1"}, "A root path does not begin with /v1"),
        ({"workers": 2}, "Only one process may write SQLite"),
        ({"workers": 2, "database_url": "postgresql://nobody@127.0.0.1:1/none"}, "More than one process needs Redis"),
        ({"host": "0.0.0.0"}, "No API key exists yet"),
        ({"host": "0.0.0.0", "bootstrap_key": "short"}, "fewer than 32 characters"),
        ({"host": "no.such.host.invalid"}, "No API key exists yet"),
        ({"host": "no.such.host.invalid", "insecure_no_auth": 1}, "Cannot listen on no.such.host.invalid"),
        ({"database_url": "oracle://host/database"}, "Peeklock has no store for oracle"),
        ({"database_url": "sqlite:///no/such/folder.db"}, "There is no folder"),
        ({"database_url": "sqlite:///empty.db"}, "Run: peeklock migrate"),
        ({"data_dir": "/dev/null/data"}, "PEEKLOCK_DATA_DIR: /dev/null/data cannot be made: Not a directory."),
        (
            {"data_dir": "/proc"},
            "The database file cannot be opened. ([Errno 2] No such file or directory: '/proc/peeklock.db')",
        ),
        ({"data_dir": "/etc/passwd"}, "PEEKLOCK_DATA_DIR: /etc/passwd is not a directory."),
        ({"database_url": f"sqlite:///{LONG}"}, f"{LONG} cannot be opened: File name too long."),
        ({"database_url": f"sqlite:///{LONG}/x.db"}, f"{LONG}/x.db cannot be opened: File name too long."),
        ({"database_url": "sqlite:///a%00b"}, "has a null character"),
        ({"database_url": "sqlite:////dev/null"}, "/dev/null is a device, a pipe or a socket, not a file."),
        ({"guide_dir": LONG}, f"PEEKLOCK_GUIDE_DIR: {LONG}/index.html cannot be read: File name too long."),
        ({"guide_dir": "nowhere"}, "PEEKLOCK_GUIDE_DIR: nowhere/index.html cannot be read: No such file or directory."),
        ({"guide_dir": "/etc/passwd"}, "PEEKLOCK_GUIDE_DIR: /etc/passwd/index.html cannot be read: Not a directory."),
        ({"host": LONG, "insecure_no_auth": 1}, f"Cannot listen on {LONG} port 0: this is not a host name."),
        ({"host": "127.evil.invalid"}, "No API key exists yet"),
        (
            {"database_url": "postgresql://nobody:hunter2@127.0.0.1:1/none?sslrootcert=/no/such.pem"},
            "The database URL names a file that cannot be read: sslrootcert=/no/such.pem.",
        ),
        ({"database_url": "sqlite:///:memory:"}, "would end with the server"),
        (
            {"database_url": "postgresql://nobody:hunter2@127.0.0.1:1/none"},
            "cannot be reached. (127.0.0.1:1: [Errno 111]",
        ),
        (
            {"database_url": "postgresql://nobody:hunter2@127.0.0.1:1/none?sslmode=perhaps"},
            "an unknown option",
        ),
        ({"database_url": "postgresql://nobody:hunter2/x@127.0.0.1:1/none"}, "cannot be read"),
        (
            {"redis_url": "gopher://user:hunter2@host"},
            "PEEKLOCK_REDIS_URL: This names no Redis; write a URL like redis://",
        ),
        ({"redis_url": "redis://user:hunter2/x@host"}, "PEEKLOCK_REDIS_URL: This names no Redis"),
        ({"redis_url": "redis://:hunter2@host?patience=1"}, "PEEKLOCK_REDIS_URL: It has an unknown option"),
        ({"redis_url": "redis+sentinel://:hunter2@host"}, "names its service"),
    ],
)
def test_a_server_refuses_to_start_in_one_sentence(tmp_path: Path, settings: dict[str, object], why: str) -> None:
    done = run_command("serve", "--port", "0", directory=tmp_path, **settings)
    error = done.stderr.splitlines()[-1]
    assert done.returncode == 2, done.stderr
    assert why in error
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stderr
    assert done.stdout == ""


def test_a_circular_link_is_refused_as_a_database(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    done = run_peeklock("serve", directory=tmp_path, database_url="sqlite:///loop")
    assert (done.returncode, done.stderr) == (2, "loop cannot be opened: Too many levels of symbolic links.\n")


@pytest.mark.parametrize("host", ["[::1]", "::1%lo", "::1"])
def test_the_loopback_address_of_ipv6_needs_no_key(
    serve: Callable[..., PeeklockProcess], tmp_path: Path, host: str
) -> None:
    server = serve(host=host)
    port = server.url.rpartition(":")[2]
    assert server.url == f"http://[::1]:{port}"
    assert status(f"{server.url}/v1/queues") == 200
    listed = run_command("queue", "list", directory=tmp_path, url=server.url)
    assert (listed.returncode, listed.stderr) == (0, "No queues.\n")


def test_a_data_directory_may_have_characters_of_urls(serve: Callable[..., PeeklockProcess], tmp_path: Path) -> None:
    server = serve(data_dir=tmp_path / "what?%41#b")
    assert status(f"{server.url}/readyz") == 200
    assert (tmp_path / "what?%41#b/peeklock.db").exists()


@pytest.mark.parametrize("command", [("migrate",), ("key", "list")])
def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = run_command(*command, directory=tmp_path, data_dir="/dev/null/data")
    assert done.returncode == 1
    assert done.stderr.startswith("PEEKLOCK_DATA_DIR: /dev/null/data cannot be made: Not a directory.")


def test_two_processes_on_postgresql_need_redis(postgres_url: str, tmp_path: Path) -> None:
    done = run_command("serve", "--workers", "2", directory=tmp_path, database_url=postgres_url)
    assert (done.returncode, "Set PEEKLOCK_REDIS_URL" in done.stderr) == (2, True)


def test_two_brokers_on_one_redis_need_prefixes_of_their_own(
    redis_url: str, serve: Callable[..., PeeklockProcess], tmp_path: Path
) -> None:
    """Each broker has a database of its own, in a directory of its own."""
    # A busy machine must not look like a Redis that does not answer, without which both would start.
    shared = {"redis_url": redis_url, "redis_timeout_seconds": 10}
    first = serve(**shared)
    other = tmp_path / "other"
    other.mkdir()
    done = run_command("serve", "--port", "0", directory=other, **shared)
    error = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (2, "")
    assert "uses Redis under the prefix 'peeklock:'" in error
    assert "PEEKLOCK_REDIS_PREFIX" in error
    assert serve(**shared, redis_prefix="other:", data_dir=other).pid
    assert status(f"{first.url}/readyz") == 200


def test_tables_of_another_version_are_refused_until_they_are_migrated(
    empty_postgres_url: str, serve: Callable[..., PeeklockProcess], tmp_path: Path
) -> None:
    done = run_command("serve", "--port", "0", directory=tmp_path, database_url=empty_postgres_url)
    assert (done.returncode, "Run: peeklock migrate" in done.stderr) == (2, True)
    migrated = run_command("migrate", directory=tmp_path, database_url=empty_postgres_url)
    assert (migrated.returncode, migrated.stderr) == (0, "The tables are up to date.\n")
    server = serve(on_terminal=True, database_url=empty_postgres_url)
    assert "-X PUT" in server.output()  # sends create no queue there, so the first steps do


def test_a_server_serves_tables_of_a_newer_version(serve: Callable[..., PeeklockProcess], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/newer.db"
    assert run_command("migrate", directory=tmp_path, database_url=url).returncode == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "newer.db")) as connection, connection:
        connection.execute("CREATE TABLE of_a_newer_version (id INTEGER)")
        connection.execute("UPDATE alembic_version SET version_num = 'ffff'")
    refused = run_command("migrate", directory=tmp_path, database_url=url)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.splitlines()[-1].endswith("has nothing to do and changed nothing.")
    server = serve(database_url=url)
    assert status(f"{server.url}/readyz") == 200


def test_a_file_is_served_by_one_process(serve: Callable[..., PeeklockProcess], tmp_path: Path) -> None:
    first = serve()
    done = run_command("serve", "--port", "0", directory=tmp_path)
    assert (done.returncode, f"in use by process {first.pid}" in done.stderr) == (2, True)


def test_a_terminal_shows_first_steps_in_five_lines(serve: Callable[..., PeeklockProcess], tmp_path: Path) -> None:
    server = serve(on_terminal=True)
    assert status(f"{server.url}/readyz") == 200
    server.terminate()
    assert server.wait() == 0
    listening, send, receive, complete, docs = server.output().splitlines()
    assert f"listens on {server.url} and keeps its messages in {tmp_path / 'data/peeklock.db'}" in listening
    assert [f"{server.url}/v1/queues/hello/" in line for line in (send, receive, complete)] == [True] * 3
    assert docs == f"Docs: {server.url}/docs  Console: {server.url}/console"


def test_a_terminal_shows_where_the_guide_is_if_there_is_one(
    serve: Callable[..., PeeklockProcess], tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text("")
    server = serve(on_terminal=True, guide_dir=tmp_path, console=0)
    assert server.output().splitlines()[-1] == f"Docs: {server.url}/docs  Guide: {server.url}/docs/guide/"


def test_a_program_gets_the_url_in_a_line_of_json_and_no_first_steps(serve: Callable[..., PeeklockProcess]) -> None:
    server = serve()
    assert server.output() == ""
    assert [line["url"] for line in server.lines() if line["message"] == "listening"] == [server.url]


def test_a_port_in_use_is_refused_without_first_steps(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_command("serve", "--port", str(port), directory=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"Cannot listen on 127.0.0.1 port {port}: Address already in use.")


def test_beyond_loopback_a_server_starts_with_insecure_no_auth(serve: Callable[..., PeeklockProcess]) -> None:
    server = serve("--insecure-no-auth", host="0.0.0.0")
    assert status(f"{server.url}/v1/queues") == 200
    assert server.output() == ""


def test_beyond_loopback_a_server_starts_with_the_operators_key(serve: Callable[..., PeeklockProcess]) -> None:
    for _ in range(2):  # the second time the key exists already
        server = serve(host="0.0.0.0", bootstrap_key=SECRET)
        assert status(f"{server.url}/v1/queues") == 401
        assert status(f"{server.url}/v1/queues", f"Bearer {SECRET}") == 200
        server.terminate()
        assert server.wait() == 0
        assert SECRET not in server.log()


def test_each_bad_setting_is_printed_on_one_line(tmp_path: Path) -> None:
    done = run_command("serve", directory=tmp_path, port="eighty", workers=0, log_format="xml", migrate_me="please")
    assert done.returncode == 2
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == [
        "PEEKLOCK_PORT",
        "PEEKLOCK_WORKERS",
        "PEEKLOCK_LOG_FORMAT",
    ]


def test_a_misspelt_setting_is_logged_with_the_nearest_setting(serve: Callable[..., PeeklockProcess]) -> None:
    service = serve(wroker="2", log_levels="info", service_host="10.0.0.1", api_key="of another command")
    warned = {line["given"]: line["nearest"] for line in service.lines() if "nearest" in line}
    assert warned == {"PEEKLOCK_WROKER": "PEEKLOCK_WORKERS", "PEEKLOCK_LOG_LEVELS": "PEEKLOCK_LOG_LEVEL"}


def test_every_setting_is_in_the_help(tmp_path: Path) -> None:
    help_text = run_command("serve", "--help", directory=tmp_path).stdout
    assert [name for name in Settings.model_fields if f"PEEKLOCK_{name.upper()}" not in help_text] == []


@pytest.mark.parametrize(
    "url", ["postgresql://nobody@127.0.0.1:1/none", "mysql://nobody@127.0.0.1:1/none?unknown=1", "sqlite:////nowhere/x"]
)
def test_a_failed_migration_prints_one_sentence(tmp_path: Path, url: str) -> None:
    done = run_command("migrate", directory=tmp_path, database_url=url)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)


def test_a_repeated_migration_has_no_effect(tmp_path: Path) -> None:
    for _ in range(2):
        done = run_command("migrate", directory=tmp_path)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "The tables are up to date.")
    assert (tmp_path / "data/peeklock.db").exists()


def test_the_openapi_document_is_printed(tmp_path: Path) -> None:
    document = json.loads(run_command("openapi", directory=tmp_path).stdout)
    assert "/v1/queues/{queue}/messages" in document["paths"]


def test_the_benchmark_of_the_source_tree_is_run(tmp_path: Path) -> None:
    done = run_command("bench", "--help", directory=tmp_path)
    assert (done.returncode, done.stdout.partition(" [")[0]) == (0, "usage: peeklock bench")


def status(url: str, authorization: str | None = None) -> int:
    """Return the status of a GET."""
    request = urllib.request.Request(url, headers={"authorization": authorization} if authorization else {})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
