"""`peeklock send | receive | browse` at a real server."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from decimal import Decimal

import httpx
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


def test_what_is_said_with_lines_is_said_of_each(terminal: Terminal) -> None:
    terminal.see("send", "said-lines", "--lines", "--priority", "9", "--delay", "3600", stdin=b"one\ntwo")
    found = terminal.read("browse", "said-lines")
    assert [(b64decode(one["body_base64"]), one["priority"], one["state"]) for one in found] == [
        (b"one", 9, "scheduled"),
        (b"two", 9, "scheduled"),
    ]


@pytest.mark.parametrize("said", [(), ("--content-type", "application/json"), ("--content-type", "text/csv")])
def test_a_line_is_the_message_that_its_text_alone_would_be(terminal: Terminal, said: tuple[str, ...]) -> None:
    queue = f"alike-{len(said)}-{said[-1].partition('/')[2] if said else 'plain'}"
    terminal.see("send", queue, '{"a": 1e999}', *said)
    terminal.see("send", queue, "--lines", *said, stdin=b'{"a": 1e999}\n')
    alone, line = terminal.read("browse", queue)
    for name in ("body", "body_base64", "content_type"):
        assert alone.get(name) == line.get(name)


def test_a_line_that_is_not_the_json_it_should_be_is_named(terminal: Terminal) -> None:
    done = terminal.type("send", "broken", "--lines", "--content-type", "application/json", stdin=b'{"a": 1}\n{"a"\n')
    assert (done.returncode, done.stdout, "Line 2 is not JSON" in done.stderr) == (2, "", True)
    assert terminal.refusal("queue", "show", "broken").startswith("queue-not-found")


@pytest.mark.parametrize("number", ["1e999", "-1e-999", "123456789012345678901234567890", "0.1", "1.0", "17"])
def test_a_number_is_printed_as_large_as_it_was_sent(terminal: Terminal, number: str) -> None:
    terminal.see("send", "numbers", f'{{"n": {number}}}', "--content-type", "application/json")
    printed = terminal.see("receive", "numbers", "--json")
    (shown,) = re.findall(r'"n": ?([^}]*)}', printed)
    assert Decimal(shown) == Decimal(number)
    assert "Infinity" not in printed


def test_a_message_without_a_body_is_an_empty_line(terminal: Terminal) -> None:
    httpx.post(f"{terminal.url}/v1/queues/bodiless/messages").raise_for_status()
    assert terminal.see("receive", "bodiless") == "\n"
    (shown,) = terminal.read("queue", "show", "bodiless")
    assert set(shown["counts"].values()) == {0}


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


def test_a_body_is_given_once(terminal: Terminal) -> None:
    (terminal.directory / "body").write_bytes(b"x")
    done = terminal.type("send", "twice-given", "x", "--file", "body")
    assert (done.returncode, "given twice" in done.stderr) == (2, True)


@pytest.mark.parametrize("option", [("--max", "2"), ("--wait", "1"), ("--dead-letter",)])
def test_numbers_and_a_search_do_not_go_together(terminal: Terminal, option: tuple[str, ...]) -> None:
    done = terminal.type("receive", "later", "--number", "1", *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert option[0] in done.stderr


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
    assert [b64decode(one["body_base64"]) for one in terminal.read("browse", "seen", "--limit", "2")] == [b"a", b"bb"]
    long = ("--filter", "message.body_bytes == 2")
    assert [b64decode(one["body_base64"]) for one in terminal.read("browse", "seen", *long)] == [b"bb", b"cc"]
    assert terminal.read("browse", "seen", "--state", "locked") == []
    assert "sequence_number" in terminal.see("browse", "seen")
    assert terminal.refusal("browse", "seen", "--filter", "message.").startswith("invalid-request: ")


def test_a_refusal_is_a_problem_document_where_json_is_asked_for(terminal: Terminal) -> None:
    problem = json.loads(terminal.refusal("browse", "nowhere", "--json"))
    assert (problem["code"], problem["status"]) == ("queue-not-found", 404)


def test_a_server_that_is_away_is_named(terminal: Terminal) -> None:
    said = terminal.refusal("queue", "list", "--url", "http://127.0.0.1:1")
    assert said.startswith("No answer from http://127.0.0.1:1: ")
