"""`peeklock context ...`: servers by name, in a file that only its owner reads."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import run_command
from tests.peeklock_process import PeeklockProcess

SECRET = "pk_" + "s" * 40
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for configuration, and the path of the file in it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config/peeklock/contexts.json"


def test_contexts_are_added_used_listed_shown_and_removed(tmp_path: Path, config: Path) -> None:
    def context(*words: str, stdin: bytes = b"") -> str:
        done = run_command("context", *words, directory=tmp_path, stdin=stdin)
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done.stdout

    context("add", "local", "--url", NOWHERE)
    context("add", "prod", "--url", "https://prod.example", "--api-key", "-", stdin=f"{SECRET}\n".encode())
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o700
    assert json.loads(config.read_text())["contexts"]["prod"]["api_key"] == SECRET
    assert json.loads(context("show", "--json")) == {"name": "local", "current": True, "url": NOWHERE, "api_key": False}
    assert json.loads(context("show", "prod", "--json"))["url"] == "https://prod.example"
    context("use", "prod")
    listed = [json.loads(line) for line in context("list", "--output", "json").splitlines()]
    assert [(item["name"], item["current"], item["api_key"]) for item in listed] == [
        ("local", False, False),
        ("prod", True, True),
    ]
    assert "prod.example" in context("list")
    context("remove", "prod")
    assert SECRET not in config.read_text()
    done = run_command("context", "show", directory=tmp_path)
    assert (done.returncode, done.stderr) == (1, "There is no current context.\n")


def test_the_current_context_stays_when_another_one_is_added_or_removed(tmp_path: Path, config: Path) -> None:
    for words in (("add", "b", "--url", NOWHERE), ("add", "a", "--url", NOWHERE), ("remove", "a")):
        assert run_command("context", *words, directory=tmp_path).returncode == 0
        assert json.loads(config.read_text())["current"] == "b"


@pytest.mark.parametrize("verb", ["use", "show", "remove"])
def test_an_unknown_context_is_an_error(tmp_path: Path, verb: str) -> None:
    done = run_command("context", verb, "prod", directory=tmp_path)
    assert (done.returncode, done.stderr) == (1, "Context prod does not exist. Contexts: none.\n")
    done = run_command("queue", "list", "--context", "prod", directory=tmp_path)
    assert (done.returncode, "Context prod does not exist" in done.stderr) == (2, True)


def test_the_current_context_has_the_server_and_the_key(serve: Callable[..., PeeklockProcess], tmp_path: Path) -> None:
    key = first_key(tmp_path)
    url = serve().url
    run_command("context", "add", "local", "--url", url, "--api-key", key, directory=tmp_path)
    assert run_command("queue", "list", directory=tmp_path).returncode == 0
    assert len(run_command("key", "list", "--json", directory=tmp_path).stdout.splitlines()) == 1

    refused = run_command("queue", "list", directory=tmp_path, api_key=SECRET)
    assert refused.stderr.startswith("unauthenticated: "), "the environment comes before the context"
    unreachable = run_command("queue", "list", directory=tmp_path, url=NOWHERE)
    assert unreachable.stderr.startswith(f"No answer from {NOWHERE}")
    chosen = run_command("queue", "list", "--context", "local", directory=tmp_path, url=NOWHERE, api_key=SECRET)
    assert chosen.returncode == 0, "an option comes before the environment"


def test_the_key_of_a_context_goes_to_no_other_server(serve: Callable[..., PeeklockProcess], tmp_path: Path) -> None:
    key = first_key(tmp_path)
    url = serve().url
    run_command("context", "add", "elsewhere", "--url", NOWHERE, "--api-key", key, directory=tmp_path)
    assert httpx.get(f"{url}/v1/queues", headers={"authorization": f"Bearer {key}"}, timeout=60).is_success
    done = run_command("queue", "list", "--url", url, directory=tmp_path)
    assert (done.returncode, done.stderr.partition(":")[0]) == (1, "unauthenticated")


def test_a_broken_file_is_named(tmp_path: Path, config: Path) -> None:
    config.parent.mkdir(parents=True)
    config.write_text("[]")
    for command in (("queue", "list"), ("context", "list")):
        done = run_command(*command, directory=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"{config} cannot be read: ")


def first_key(directory: Path) -> str:
    return run_command("key", "create", "--principal", "admin", directory=directory).stdout.strip()
