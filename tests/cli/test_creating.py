"""A create never changes the settings of what exists. Only an update does."""

from __future__ import annotations

import pytest

from tests.cli.conftest import CommandLine

KINDS = [("queue", "kept"), ("topic", "kept"), ("subscription", "kept", "all")]


@pytest.fixture(params=KINDS, ids=lambda words: words[0])
def existing(command_line: CommandLine, request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The words that name a queue, a topic or a subscription with settings."""
    kind, *names = request.param
    if kind == "subscription":
        command_line.run_ok("topic", "create", names[0], "--if-not-exists")
    option = "--filter=message.priority > 4" if kind == "subscription" else "--description=first"
    command_line.run_ok(kind, "create", *names, option, "--if-not-exists")
    return (kind, *names)


def test_create_refuses_what_exists(command_line: CommandLine, existing: tuple[str, ...]) -> None:
    kind, *names = existing
    refused = command_line.run_refused(kind, "create", *names)
    assert refused.startswith("precondition-failed: ")
    assert "already exists" in refused
    assert "--if-not-exists" in refused


def test_if_not_exists_prints_what_exists(command_line: CommandLine, existing: tuple[str, ...]) -> None:
    kind, *names = existing
    done = command_line.run(kind, "create", *names, "--if-not-exists")
    assert (done.returncode, done.stderr) == (0, "It already exists. Its settings are unchanged.\n")
    assert "message.priority > 4" in done.stdout if kind == "subscription" else "first" in done.stdout


def test_a_purge_asks_first(command_line: CommandLine) -> None:
    command_line.run_ok("send", "purges", "x")
    for answer in (b"", b"n\n"):
        done = command_line.run("queue", "purge", "purges", stdin=answer)
        assert (done.returncode, done.stdout) == (1, "")
        assert "Remove all messages that are not locked from queue purges?" in done.stderr
    assert len(command_line.read_json("browse", "purges")) == 1
    assert command_line.run_ok("queue", "purge", "purges", stdin=b"y\n") == "1 removed\n"
