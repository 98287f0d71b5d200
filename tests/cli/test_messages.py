"""`peeklock send | receive | browse` at a real server."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Terminal


def test_a_message_is_sent_from_the_argument(terminal: Terminal) -> None:
    assert terminal.see("send", "said", "hello").startswith("sent 1 (")
    assert terminal.see("receive", "said") == "hello\n"
    assert terminal.see("receive", "said") == ""


def test_a_message_is_sent_from_a_file_with_what_is_said_about_it(terminal: Terminal) -> None:
    file = terminal.directory / "order.json"
    file.write_text('{"order": 17}')
    options = ("--file", str(file), "--content-type", "application/json", "--priority", "7", "--delay", "3600")
    (sent,) = terminal.read("send", "filed", *options)
    assert sent["state"] == "scheduled"
    (seen,) = terminal.read("browse", "filed")
    assert (seen["body"], seen["priority"], seen["state"]) == ({"order": 17}, 7, "scheduled")


def test_a_message_is_sent_from_standard_input(terminal: Terminal) -> None:
    terminal.see("send", "piped", stdin="schön\n".encode())
    assert terminal.see("receive", "piped") == "schön\n\n"


def test_every_line_is_a_message(terminal: Terminal) -> None:
    lines = [f"line {number}" for number in range(1201)]
    assert terminal.see("send", "lines", "--lines", stdin="\n".join(lines).encode()) == "sent 1201\n"
    assert terminal.see("receive", "lines", "--max", "1000").splitlines() == lines[:1000]
    (shown,) = terminal.read("queue", "show", "lines")
    assert shown["counts"]["available"] == 201


@pytest.mark.parametrize(
    ("ending", "state"),
    [("abandon", "available"), ("dead-letter", "dead_lettered"), ("defer", "deferred"), ("none", "locked")],
)
def test_what_was_received_is_settled_as_asked(terminal: Terminal, ending: str, state: str) -> None:
    terminal.see("send", ending, "work")
    (received,) = terminal.read("receive", ending, "--then", ending)
    assert (received["body_base64"], received["state"]) == ("d29yaw==", "locked")
    (seen,) = terminal.read("browse", ending)
    assert seen["state"] == state


def test_a_deferred_message_is_received_by_its_number(terminal: Terminal) -> None:
    terminal.see("send", "later", "work")
    done = terminal.type("receive", "later", "--then", "defer")
    number = done.stderr.split()[-1]
    assert done.stderr == f"deferred: receive it with --number {number}\n"
    assert terminal.see("receive", "later") == ""
    assert terminal.see("receive", "later", "--number", number) == "work\n"


def test_what_was_received_is_completed_by_default(terminal: Terminal) -> None:
    terminal.see("send", "done", "work")
    terminal.see("receive", "done", "--wait", "1")
    assert terminal.read("browse", "done") == []


def test_dead_letters_are_received(terminal: Terminal) -> None:
    terminal.see("send", "twice", "work")
    terminal.see("receive", "twice", "--then", "dead-letter")
    assert terminal.see("receive", "twice") == ""
    assert terminal.see("receive", "twice", "--dead-letter") == "work\n"


def test_messages_are_looked_at_by_state_filter_and_limit(terminal: Terminal) -> None:
    terminal.see("send", "seen", "--lines", stdin=b"a\nbb\ncc\n")
    assert [one["body"] for one in terminal.read("browse", "seen", "--limit", "2")] == ["a", "bb"]
    long = ("--filter", "message.body_bytes == 4")
    assert [one["body"] for one in terminal.read("browse", "seen", *long)] == ["bb", "cc"]
    assert terminal.read("browse", "seen", "--state", "locked") == []
    assert "sequence_number" in terminal.see("browse", "seen")
    assert terminal.refusal("browse", "seen", "--filter", "message.").startswith("invalid-request: ")


def test_a_refusal_is_a_problem_document_where_json_is_asked_for(terminal: Terminal) -> None:
    problem = json.loads(terminal.refusal("browse", "nowhere", "--json"))
    assert (problem["code"], problem["status"]) == ("queue-not-found", 404)


def test_a_server_that_is_away_is_named(terminal: Terminal) -> None:
    said = terminal.refusal("queue", "list", "--url", "http://127.0.0.1:1")
    assert said.startswith("No answer from http://127.0.0.1:1: ")
