"""A command imports what it needs and no more, because every call in a script pays for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from app.cli.lazy_commands import COMMANDS
from tests.cli.command_names import modules
from tests.peeklock_process import environment
from tests.servers import TIMEOUT_SECONDS

NOTHING_LISTENS = ("--url", "http://127.0.0.1:1")
SLOW = ("asyncio", "fastapi", "pydantic", "pygments", "rich", "sqlalchemy", "structlog", "app.store")
"""Modules that take a tenth of a second together, or more, and that no command of a client needs."""

OF_FIELDS = ("app.cli.field_options", "app.cli.request_options")
"""Modules that only options for the fields of a request need."""

OF_A_SERVER = ("app.api", "app.broker", "app.domain", "app.wire")
"""Packages that take a fifth of a command's start together."""

REPORT = """
import sys
from app.cli import app
try:
    app(sys.argv[1:], prog_name="peeklock")
finally:
    print("reported:", *sys.modules, file=sys.stderr)
"""


REPORT_OF_CERTIFICATES = """
import ssl, sys
context = ssl.create_default_context
ssl.create_default_context = lambda *given, **named: print("reported: certificates", file=sys.stderr) or context(*given, **named)
from app.cli import app
app(sys.argv[1:], prog_name="peeklock")
"""


def imported_by(*arguments: str) -> set[str]:
    """Run a command, and return the modules that it has imported."""
    return reported_by(REPORT, *arguments)


def of_a_server(modules: set[str]) -> set[str]:
    """Return the modules that belong to a package of a server."""
    return {module for module in modules if module.startswith(OF_A_SERVER)}


def reported_by(program: str, *arguments: str, variables: dict[str, str] | None = None) -> set[str]:
    """Run a command in a program, and return the words that the program reports."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=variables or environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    return set(done.stderr.rpartition("reported: ")[2].split())


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


@pytest.mark.parametrize(
    ("url", "proxy", "is_read"),
    [
        ("http://127.0.0.1:1", {}, False),
        ("https://127.0.0.1:1", {}, True),
        ("http://peeklock.invalid", {"HTTP_PROXY": "https://127.0.0.1:1"}, True),
        ("http://localhost:1", {"HTTP_PROXY": "https://127.0.0.1:1"}, False),
    ],
    ids=["plain", "encrypted", "through an encrypted proxy", "without the proxy, to this host"],
)
def test_certificates_are_read_only_where_a_request_can_be_encrypted(
    url: str, proxy: dict[str, str], is_read: bool
) -> None:
    without_proxies = {name: value for name, value in environment().items() if not name.lower().endswith("_proxy")}
    reported = reported_by(REPORT_OF_CERTIFICATES, "queue", "list", "--url", url, variables=without_proxies | proxy)
    assert ("certificates" in reported) == is_read


@pytest.mark.parametrize(
    "command",
    [
        ("queue", "create", "orders"),
        ("queue", "update", "orders"),
        ("topic", "create", "news"),
        ("topic", "update", "news"),
        ("subscription", "create", "news", "all"),
        ("subscription", "update", "news", "all"),
        ("send", "orders", "text"),
        ("publish", "news", "text"),
        ("complete", "orders", "token"),
        ("abandon", "orders", "token"),
        ("defer", "orders", "token"),
        ("renew", "orders", "token"),
        ("dead-letter", "add", "orders", "token"),
    ],
    ids=" ".join,
)
def test_a_command_with_options_for_fields_imports_no_shapes_of_requests(command: tuple[str, ...]) -> None:
    imported = imported_by(*command, *NOTHING_LISTENS)
    assert imported.issuperset(OF_FIELDS)
    assert of_a_server(imported) <= {"app.wire", "app.wire.media_types"}


@pytest.mark.parametrize("command", [("--version",), ("queue", "create", "--help"), ("send", "--help")], ids=" ".join)
def test_help_and_version_import_no_http_client(command: tuple[str, ...]) -> None:
    assert imported_by(*command).isdisjoint((*SLOW, "httpx"))


@pytest.mark.parametrize(
    "command",
    [
        ("queue", "list"),
        ("queue", "show", "orders"),
        ("queue", "delete", "orders", "--yes"),
        ("queue", "purge", "orders", "--yes"),
        ("receive", "orders"),
        ("browse", "orders"),
        ("watch", "orders"),
        ("topic", "list"),
        ("subscription", "list", "news"),
        ("dead-letter", "list", "orders"),
        ("dead-letter", "redrive", "orders"),
        ("transaction", "open"),
        ("state", "get", "total"),
        ("archive", "list"),
    ],
    ids=" ".join,
)
def test_a_command_without_options_for_fields_imports_nothing_for_them(command: tuple[str, ...]) -> None:
    imported = imported_by(*command, *NOTHING_LISTENS)
    assert "httpx" in imported
    assert imported.isdisjoint(OF_FIELDS)
    assert of_a_server(imported) == set()


@pytest.mark.parametrize("command", [("--version",), ("lost",), ("queue", "lost")], ids=" ".join)
def test_no_command_is_imported_if_none_runs(command: tuple[str, ...]) -> None:
    assert imported_by(*command).isdisjoint(modules(COMMANDS))


def test_the_help_of_a_group_imports_only_its_commands() -> None:
    assert imported_by("queue") & modules(COMMANDS) == modules({"queue": COMMANDS["queue"]}) | {"app.cli.selections"}
