"""Answers as tables, JSON and YAML, and what is printed where there is nothing to print."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from contextlib import suppress

import pytest
import yaml

import app
from app.cli.output import aligned_line, cell_text
from app.cli.yaml_text import yaml_document
from tests.cli.conftest import CommandLine
from tests.peeklock_process import PROGRAM, environment
from tests.servers import TIMEOUT_SECONDS

VALUES = [
    None, True, 0, -1.5, "", "plain", "two words", "yes", "Null", "1e3", "2026-11-20", "a: b", "- a", "#a", "'",
    '"', "\\",
    " a", "a ", "line\nbreak", "\t", "\x7f", "\x85", "\u2028", "\ufeff", "Zürich", "😀", [], {}, [[], {}],
    [[1, [2]], {"a": [{"b": 1}]}],
    {"": {"no": [None]}, "two words": {"nested": {"x": "y"}}},
]  # fmt: skip


def test_the_version_is_printed(command_line: CommandLine) -> None:
    assert command_line.run_ok("--version") == f"peeklock {app.__version__}\n"


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_yaml_says_what_json_says(value: object) -> None:
    assert yaml.safe_load(yaml_document({"value": value, "values": [value]})) == {"value": value, "values": [value]}
    assert yaml.safe_load(yaml_document(value)) == value


@pytest.mark.parametrize(
    "command",
    [
        ("queue", "show", "forms"), ("queue", "list"), ("browse", "forms"), ("queue", "purge", "forms", "--dry-run"),
        *(
            pytest.param(words, marks=pytest.mark.nightly)
            for words in (("capabilities",), ("explain", "forms"), ("topic", "list"), ("archive", "list"))
        ),
    ],
    ids=" ".join,
)  # fmt: skip
def test_each_answer_has_three_forms(command_line: CommandLine, command: tuple[str, ...]) -> None:
    command_line.run_ok("topic", "create", "forms", "--if-not-exists")
    command_line.run_ok("send", "forms", "x")
    names = [list(document) for document in command_line.read_json(*command)]
    lines = command_line.run_ok(*command, "--output", "json").splitlines()
    assert [list(json.loads(line)) for line in lines] == names
    assert [list(document) for document in yaml.safe_load_all(command_line.run_ok(*command, "-o", "yaml"))] == names
    assert not command_line.run_ok(*command, "-o", "table").startswith(("{", "---"))


def test_received_messages_have_three_forms(command_line: CommandLine) -> None:
    command_line.run_ok("send", "received", "--lines", stdin=b"a\nb\nc\n")
    (message,) = yaml.safe_load_all(command_line.run_ok("receive", "received", "-o", "yaml"))
    assert message["state"] == "locked"
    heading, row = command_line.run_ok("receive", "received", "-o", "table", "--then", "none").splitlines()
    assert "lock_token" in heading
    assert row.split()[2].startswith(row.split()[0] + ".")
    assert command_line.run_ok("receive", "received") == "c\n"


def test_a_refusal_is_printed_in_the_form_that_is_asked_for(command_line: CommandLine) -> None:
    options = ("queue", "create", "refused", "--lock-duration-seconds=-1")
    assert "at #/body/lock_duration_seconds" in command_line.run_refused(*options)
    assert json.loads(command_line.run_refused(*options, "-o", "json"))["code"] == "invalid-request"
    assert yaml.safe_load(command_line.run_refused(*options, "-o", "yaml"))["code"] == "invalid-request"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("browse", "empty"), "No messages in queue empty."),
        (("receive", "empty"), "No message in queue empty."),
        (("dead-letter", "list", "empty"), "No dead-lettered messages."),
        (("recover", "empty", "--receiver-id", "me"), "No message of receiver me."),
        (("subscription", "list", "empty"), "No subscriptions of topic empty."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("output", [(), ("--output", "json")], ids=("table", "json"))
def test_an_empty_result_is_named_on_standard_error(
    command_line: CommandLine, command: tuple[str, ...], sentence: str, output: tuple[str, ...]
) -> None:
    command_line.run_ok("queue", "create", "empty", "--redelivery", "automatic", "--if-not-exists")
    command_line.run_ok("topic", "create", "empty", "--if-not-exists")
    done = command_line.run(*command, *output)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"{sentence}\n")


def test_a_narrow_terminal_shows_each_field_on_its_own_line(command_line: CommandLine) -> None:
    (sent,) = command_line.read_json("send", "narrow", "x")
    narrow, wide = (shown_on_terminal(command_line, columns, "browse", "narrow") for columns in (40, 200))
    assert max(map(len, narrow.splitlines())) <= 60
    assert ["message_id", sent["message_id"]] in [line.split() for line in narrow.splitlines()]
    assert any(sent["message_id"] in line and "available" in line for line in wide.splitlines())


@pytest.mark.parametrize(
    "command",
    [("queue", "list"), ("top", "--count", "1"), ("watch", "a-queue-of-orders", "--count", "1")],
    ids=lambda command: command[0],
)
def test_counts_fit_a_terminal_of_80_columns(command_line: CommandLine, command: tuple[str, ...]) -> None:
    command_line.run_ok("queue", "create", "a-queue-of-orders", "--if-not-exists")
    lines = shown_on_terminal(command_line, 80, *command).splitlines()
    (heading,) = [line for line in lines if "avail" in line]
    assert "lock defer dead block uncom" in " ".join(heading.split())
    assert max(map(len, map(without_colours, lines))) <= 80


def test_top_shows_the_fullest_queues_that_fit_on_the_screen(command_line: CommandLine) -> None:
    for number in range(1, 8):
        command_line.run_ok("send", f"screen{number}", "--lines", stdin=b"x\n" * number * 20)
    lines = shown_on_terminal(command_line, 80, "top", "--count", "1", lines=6).splitlines()
    assert [line.split()[0] for line in lines[-4:]] == ["screen7", "screen6", "screen5", "screen4"]
    narrow = shown_on_terminal(command_line, 30, "top", "--count", "1", lines=6)
    assert "screen7" in narrow
    assert "screen6" not in narrow


def without_colours(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line)


def shown_on_terminal(command_line: CommandLine, columns: int, *arguments: str, lines: int = 24) -> str:
    """Run a command on a terminal of this size, and return what it shows."""
    ours, theirs = pty.openpty()
    command = subprocess.Popen(
        [PROGRAM, *arguments],
        env=environment(url=command_line.url) | {"TERM": "dumb", "COLUMNS": str(columns), "LINES": str(lines)},
        stdout=theirs,
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the end of a terminal raises it
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert command.wait(TIMEOUT_SECONDS) == 0
    return shown.decode()


def test_a_cell_has_no_control_characters() -> None:
    assert cell_text("two\nlines \x1b[31m") == "two\\nlines \\x1b[31m"
    assert cell_text("Zürich") == "Zürich"


def test_columns_are_aligned_also_after_letters_that_take_two_places() -> None:
    assert aligned_line(["東京", "x"], [6, 1]) == "東京  " + "  x"
    assert aligned_line(["Zürich", "x", ""], [8, 1, 4]) == "Zürich  " + "  x"
