"""`peeklock complete | abandon | defer | release | renew | dead-letter add` by lock token, at a real server."""

from __future__ import annotations

import pytest

from tests.cli.conftest import CommandLine


def locked(command_line: CommandLine, queue: str) -> str:
    """Send and receive a message, and return the lock token as the command prints it."""
    command_line.run_ok("send", queue, "work")
    done = command_line.run("receive", queue, "--then", "none")
    assert (done.returncode, done.stdout) == (0, "work\n")
    word, token = done.stderr.split()
    assert word == "locked:"
    return token


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        (("complete",), "completed"),
        (("abandon",), "abandoned"),
        (("defer",), "deferred"),
        (("release",), "released"),
        (("dead-letter", "add"), "dead_lettered"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_message_is_settled_by_its_token(command_line: CommandLine, command: tuple[str, ...], outcome: str) -> None:
    queue = f"settled-{outcome}"
    token = locked(command_line, queue)
    assert command_line.run_ok(*command, queue, token).split() == [outcome, token.partition(".")[0]]
    (settled,) = command_line.read_json(*command, queue, token)
    assert (settled["outcome"], settled["replayed"]) == (outcome, True)
    other = "complete" if outcome != "completed" else "abandon"
    assert command_line.run_refused(other, queue, token).startswith("already-settled: ")


def test_a_settlement_has_the_fields_of_the_api(command_line: CommandLine) -> None:
    options = ("--delay-seconds", "3600", "--reason", "busy", "--no-count", '--properties={"tries": 1}')
    command_line.run_ok("abandon", "delays", locked(command_line, "delays"), *options)
    (delayed,) = command_line.read_json("browse", "delays")
    assert (delayed["state"], delayed["failure_count"], delayed["properties"]) == ("scheduled", 0, {"tries": 1})
    options = ("--reason", "no-such-article", "--description", "Article 17 is not sold.")
    command_line.run_ok("dead-letter", "add", "buried", locked(command_line, "buried"), *options)
    (buried,) = command_line.read_json("dead-letter", "list", "buried")
    assert (buried["dead_letter_reason"], buried["dead_letter_description"]) == options[1::2]


def test_a_lock_is_renewed_by_its_token(command_line: CommandLine) -> None:
    token = locked(command_line, "renewed")
    (renewed,) = command_line.read_json("renew", "renewed", token, "--lock-seconds", "300")
    assert renewed["lock_remaining_ms"] > 200_000
    assert command_line.run_ok("renew", "renewed", token).startswith("locked until ")
    (changed,) = command_line.read_json("renew", "renewed", token, "--lock-seconds", "60", "--exact")
    assert changed["lock_remaining_ms"] <= 60_000
    unknown = "1." + "0" * 32
    assert command_line.run_refused("renew", "renewed", unknown).startswith("message-not-found: ")


def test_a_message_that_is_missing_is_an_error(command_line: CommandLine) -> None:
    command_line.run_ok("queue", "create", "numbered")
    done = command_line.run("receive", "numbered", "--number", "1000000")
    assert (done.returncode, done.stdout) == (1, "")
    assert "1000000" in done.stderr
