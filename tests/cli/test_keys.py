"""`peeklock key ...`, directly in a database and at a running server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import run_command
from tests.peeklock_process import PeeklockProcess


def test_the_first_key_is_made_in_the_database(serve: Callable[..., PeeklockProcess], tmp_path: Path) -> None:
    made = key(tmp_path, "create", "--principal", "admin", "--days", "1")
    assert made["secret"].startswith("pk_")
    assert [item["id"] for item in listed(tmp_path)] == [made["id"]]

    server = serve(on_terminal=True)
    assert "Authorization: Bearer" in server.output()
    at = {"url": server.url}
    refused = run_command("queue", "list", directory=tmp_path, **at)
    assert (refused.returncode, refused.stderr.partition(":")[0]) == (1, "unauthenticated")
    admitted = {**at, "api_key": made["secret"]}
    assert run_command("queue", "list", directory=tmp_path, **admitted).returncode == 0

    shop = key(tmp_path, "create", "--principal", "shop", "--right", "send", "--pattern", "orders*", **admitted)
    assert (shop["rights"], shop["patterns"]) == (["send"], ["orders*"])
    sender = {**at, "api_key": shop["secret"]}
    assert run_command("send", "orders", "x", directory=tmp_path, **sender).returncode == 0
    forbidden = run_command("receive", "orders", directory=tmp_path, **sender)
    assert (forbidden.returncode, forbidden.stderr.partition(":")[0]) == (1, "forbidden")
    assert "shop" in run_command("key", "list", directory=tmp_path, **admitted).stdout
    assert key(tmp_path, "show", shop["id"], **admitted)["principal"] == "shop"

    assert run_command("key", "revoke", shop["id"], directory=tmp_path, **admitted).returncode == 0
    again = run_command("key", "revoke", shop["id"], directory=tmp_path, **admitted)
    assert (again.returncode, again.stderr.partition(":")[0]) == (1, "key-not-found")


@pytest.mark.parametrize(
    ("option", "value", "fault"),
    [
        ("--days", "-1", "`expires_in_seconds` must be "),
        ("--days", "nan", "`expires_in_seconds` must be "),
        ("--pattern", "a b", "`patterns[0]` must match "),
    ],
)
def test_a_key_in_the_database_has_the_limits_of_the_operation(
    tmp_path: Path, option: str, value: str, fault: str
) -> None:
    done = run_command("key", "create", "--principal", "warehouse", option, value, directory=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"invalid-request: {fault}")


def test_a_key_is_shown_from_the_database(tmp_path: Path) -> None:
    made = key(tmp_path, "create", "--principal", "anna")
    del made["secret"], made["sqs_secret_access_key"]
    assert key(tmp_path, "show", made["id"]) == made
    for_people = run_command("key", "show", made["id"], directory=tmp_path).stdout.splitlines()
    assert [line.split(maxsplit=1) for line in for_people[1:3]] == [["id", made["id"]], ["principal", "anna"]]
    unknown = run_command("key", "show", "0" * 16, directory=tmp_path)
    assert (unknown.returncode, unknown.stderr.partition(":")[0]) == (1, "key-not-found")


def test_the_sqs_secret_of_a_key_is_printed_when_it_is_made_and_again(
    serve: Callable[..., PeeklockProcess], tmp_path: Path
) -> None:
    with_secret = {"sqs_secret": "s" * 32}
    first = key(tmp_path, "create", "--principal", "admin", **with_secret)
    lines = [f"AWS_ACCESS_KEY_ID={first['id']}", f"AWS_SECRET_ACCESS_KEY={first['sqs_secret_access_key']}"]
    again = run_command("key", "sqs", first["id"], directory=tmp_path, **with_secret)
    assert (again.returncode, again.stdout.splitlines()) == (0, lines)

    at = {"url": serve(**with_secret).url, "api_key": first["secret"]}
    again = run_command("key", "sqs", first["id"], directory=tmp_path, **at)
    assert (again.returncode, again.stdout.splitlines()) == (0, lines)
    made = run_command("key", "create", "--principal", "shop", directory=tmp_path, **at)
    assert made.stdout.startswith("pk_")
    assert "AWS_SECRET_ACCESS_KEY=" in made.stderr


def test_a_key_has_no_sqs_secret_without_that_of_the_servers(tmp_path: Path) -> None:
    made = key(tmp_path, "create", "--principal", "admin")
    assert made["sqs_secret_access_key"] is None
    done = run_command("key", "sqs", made["id"], directory=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("PEEKLOCK_SQS_SECRET is not set")
    for_people = run_command("key", "create", "--principal", "anna", directory=tmp_path)
    assert "AWS" not in for_people.stderr


def test_a_key_is_revoked_in_the_database(tmp_path: Path) -> None:
    made = key(tmp_path, "create", "--principal", "somebody")
    assert run_command("key", "revoke", made["id"], directory=tmp_path).returncode == 0
    (ended,) = listed(tmp_path)
    assert ended["revoked_at"] is not None
    again = run_command("key", "revoke", made["id"], directory=tmp_path)
    assert (again.returncode, again.stderr.partition(":")[0]) == (1, "key-not-found")


def test_a_revocation_prints_a_document_with_the_json_option(
    serve: Callable[..., PeeklockProcess], tmp_path: Path
) -> None:
    first, second = (key(tmp_path, "create", "--principal", "somebody") for _ in range(2))
    assert key(tmp_path, "revoke", first["id"]) == {"revoked": first["id"]}
    at = {"url": serve().url, "api_key": second["secret"]}
    again = run_command("key", "revoke", first["id"], "--json", directory=tmp_path, **at)
    assert (again.returncode, json.loads(again.stderr)["code"]) == (1, "key-not-found")
    assert key(tmp_path, "revoke", second["id"], **at) == {"revoked": second["id"]}


def test_only_the_secret_is_printed(tmp_path: Path) -> None:
    done = run_command("key", "create", "--principal", "somebody", directory=tmp_path)
    assert done.stdout.startswith("pk_")
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.strip() not in done.stderr


def test_a_key_in_the_database_says_where_it_is_stored_and_whether_the_file_is_new(tmp_path: Path) -> None:
    file = tmp_path / "data" / "peeklock.db"
    places = [
        run_command("key", "create", "--principal", "anna", directory=tmp_path).stderr.splitlines()[-1]
        for _ in range(2)
    ]
    assert places == [
        f"Stored in {file}, which is new. For a server that runs with another database, use --url.",
        f"Stored in {file}.",
    ]


def test_a_document_of_a_new_key_leaves_the_place_to_standard_error(tmp_path: Path) -> None:
    done = run_command("key", "create", "--principal", "anna", "--json", directory=tmp_path)
    assert json.loads(done.stdout)["principal"] == "anna"
    assert done.stderr.startswith(f"Stored in {tmp_path / 'data' / 'peeklock.db'}, which is new.")


def test_a_key_of_a_named_database_says_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'named.db'}"
    assert run_command("migrate", directory=tmp_path, database_url=url).returncode == 0
    done = run_command("key", "create", "--principal", "anna", directory=tmp_path, database_url=url)
    assert done.stderr.splitlines()[-1] == "Stored in the database of PEEKLOCK_DATABASE_URL."


def test_a_third_live_key_is_refused(tmp_path: Path) -> None:
    for _ in range(2):
        key(tmp_path, "create", "--principal", "somebody")
    done = run_command("key", "create", "--principal", "somebody", directory=tmp_path)
    assert (done.returncode, done.stderr.partition(":")[0]) == (1, "too-many-keys")


def test_a_database_in_use_is_refused_with_a_hint_to_url(serve: Callable[..., PeeklockProcess], tmp_path: Path) -> None:
    serve()
    done = run_command("key", "list", directory=tmp_path)
    assert done.returncode == 1
    assert "--url" in done.stderr


def key(directory: Path, *arguments: str, **settings: object) -> Any:
    """Run a `peeklock key` command that must succeed, and return its document."""
    done = run_command("key", *arguments, "--json", directory=directory, **settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def listed(directory: Path) -> list[Any]:
    """Every key in the database."""
    done = run_command("key", "list", "--json", directory=directory)
    return [json.loads(line) for line in done.stdout.splitlines()]
