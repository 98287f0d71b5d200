"""`peeklock work`: the worker of a module, against the server that the command line would use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import run_command

REPORTS_ITS_START = """
import os, sys
sys.exit(" ".join([os.environ["PEEKLOCK_URL"], os.environ.get("PEEKLOCK_API_KEY", "without a key"), *sys.argv[1:]]))
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the module `shop`, and a context."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "shop.py").write_text(REPORTS_ITS_START)
    context = ("context", "add", "local", "--url", "http://127.0.0.1:1", "--api-key", "-")
    assert run_command(*context, directory=tmp_path, stdin=b"secret\n").returncode == 0
    return tmp_path


def test_a_worker_uses_the_server_of_the_context_and_gets_its_options(directory: Path) -> None:
    done = run_command("work", "shop:worker", "--grace-seconds", "3", directory=directory)
    assert (done.returncode, done.stderr) == (1, "http://127.0.0.1:1 secret shop:worker --grace-seconds 3\n")


def test_the_key_of_a_context_goes_to_no_other_server(directory: Path) -> None:
    done = run_command("work", "shop:worker", "--url", "http://127.0.0.1:2", directory=directory)
    assert (done.returncode, done.stderr) == (1, "http://127.0.0.1:2 without a key shop:worker\n")


def test_without_the_client_the_command_names_its_package(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peeklock_client", None)
    done = run_command("work", "shop:worker", directory=directory)
    assert (done.returncode, done.stderr) == (
        1,
        "This command needs the package peeklock-client, which is not installed.\n",
    )
