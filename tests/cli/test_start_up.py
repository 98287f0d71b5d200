"""A command imports what it needs and no more, because every call in a script pays for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from app.cli.lazy_commands import COMMANDS
from tests.peeklock_process import environment
from tests.servers import TIMEOUT_SECONDS

NOTHING_LISTENS = ("--url", "http://127.0.0.1:1")
SLOW = ("asyncio", "fastapi", "pydantic", "pygments", "rich", "sqlalchemy", "structlog", "app.store")
"""Modules that take a tenth of a second together, or more, and that no command of a client needs."""

REPORT = """
import sys
from app.cli import app
try:
    app(sys.argv[1:], prog_name="peeklock")
finally:
    print("imported:", *sys.modules, file=sys.stderr)
"""


def imported_by(*arguments: str) -> set[str]:
    """Run a command, and return the modules that it has imported."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    return set(done.stderr.rpartition("imported: ")[2].split())


@pytest.mark.parametrize(
    "command",
    [
        ("queue", "list", *NOTHING_LISTENS),
        ("queue", "create", "orders", *NOTHING_LISTENS),
        ("send", "orders", "text", *NOTHING_LISTENS),
        ("receive", "orders", *NOTHING_LISTENS),
        ("complete", "orders", "token", *NOTHING_LISTENS),
        ("key", "list", *NOTHING_LISTENS),
        ("context", "list"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_command_of_a_client_imports_no_server_and_no_slow_library(command: tuple[str, ...]) -> None:
    modules = imported_by(*command)
    assert "app.cli.output" in modules
    assert modules.isdisjoint(SLOW)


@pytest.mark.parametrize("command", [("--version",), ("queue", "create", "--help"), ("send", "--help")], ids=" ".join)
def test_help_and_version_import_no_http_client(command: tuple[str, ...]) -> None:
    assert imported_by(*command).isdisjoint((*SLOW, "httpx"))


def test_the_version_imports_no_command() -> None:
    modules = {module.partition(":")[0] for module in COMMANDS.values()}
    assert imported_by("--version").isdisjoint(f"app.cli.{module}" for module in modules)
