"""`peeklock send | receive | recover | browse` at a real server."""

from __future__ import annotations

import json
import re
import subprocess
from decimal import Decimal
from typing import get_args

import httpx
import pytest

from app.cli.receiving import SettlementAction
from app.wire.settlements import Settlement
from tests.cli.conftest import CommandLine
from tests.peeklock_process import PROGRAM, TIMEOUT_SECONDS, environment


def test_a_message_is_sent_from_the_argument(command_line: CommandLine) -> None:
    assert command_line.run_ok("send", "greetings", "hello").startswith("sent 1 (")
    assert command_line.run_ok("receive", "greetings") == "hello\n"
    assert command_line.run_ok("receive", "greetings") == ""


def test_a_message_is_sent_from_a_file_with_its_options(command_line: CommandLine) -> None:
    file = command_line.directory / "order.json"
    file.write_text('{"order": 17}')
    options = ("--file", str(file), "--content-type", "application/json", "--priority", "7", "--delay", "3600")
    (sent,) = command_line.read_json("send", "filed", *options)
    assert sent["state"] == "scheduled"
    (browsed,) = command_line.read_json("browse", "filed")
    assert (browsed["body"], browsed["priority"], browsed["state"]) == ({"order": 17}, 7, "scheduled")


def test_a_message_is_sent_from_standard_input(command_line: CommandLine) -> None:
    command_line.run_ok("send", "piped", stdin="schön\n".encode())
    assert command_line.run_ok("receive", "piped") == "schön\n\n"


def test_a_receiver_recovers_its_messages(command_line: CommandLine) -> None:
    command_line.run_ok("queue", "create", "held", "--set", "redelivery=on_request")
    for body in ("one", "two"):
        command_line.run_ok("send", "held", body)
    assert command_line.run_refused("receive", "held").splitlines()[1].startswith("  at #/body/receiver_id")
    held = command_line.read_json("receive", "held", "--receiver", "clerk", "--max", "2", "--then", "none")
    (first,) = command_line.read_json("recover", "held", "--receiver", "clerk", "--max", "1")
    assert (first["body"], first["redelivered"]) == (held[0]["body"], True)
    assert command_line.run_ok("recover", "held", "--receiver", "clerk") == "one\ntwo\n"
    assert command_line.run_ok("recover", "held", "--receiver", "other") == ""


def test_every_line_is_a_message(command_line: CommandLine) -> None:
    lines = [f"line {number}" for number in range(1201)]
    assert command_line.run_ok("send", "lines", "--lines", stdin="\n".join(lines).encode()) == "sent 1201\n"
    assert command_line.run_ok("receive", "lines", "--max", "1000").splitlines() == lines[:1000]
    (shown,) = command_line.read_json("queue", "show", "lines")
    assert shown["counts"]["available"] == 201


def test_options_with_lines_apply_to_every_line(command_line: CommandLine) -> None:
    command_line.run_ok(
        "send", "lines-with-options", "--lines", "--priority", "9", "--delay", "3600", stdin=b"one\ntwo"
    )
    found = command_line.read_json("browse", "lines-with-options")
    assert [(message["body"], message["priority"], message["state"]) for message in found] == [
        ("one", 9, "scheduled"),
        ("two", 9, "scheduled"),
    ]


@pytest.mark.parametrize("options", [(), ("--content-type", "application/json"), ("--content-type", "text/csv")])
def test_a_line_is_the_same_message_as_its_text_sent_alone(command_line: CommandLine, options: tuple[str, ...]) -> None:
    queue = f"alike-{len(options)}-{options[-1].partition('/')[2] if options else 'plain'}"
    command_line.run_ok("send", queue, '{"a": 1e999}', *options)
    command_line.run_ok("send", queue, "--lines", *options, stdin=b'{"a": 1e999}\n')
    alone, line = command_line.read_json("browse", queue)
    for name in ("body", "body_base64", "content_type"):
        assert alone.get(name) == line.get(name)


def test_a_line_that_is_not_json_is_named(command_line: CommandLine) -> None:
    done = command_line.run(
        "send", "broken", "--lines", "--content-type", "application/json", stdin=b'{"a": 1}\n{"a"\n'
    )
    assert (done.returncode, done.stdout, "Line 2 is not JSON" in done.stderr) == (2, "", True)
    assert command_line.run_refused("queue", "show", "broken").startswith("queue-not-found")


@pytest.mark.parametrize("number", ["1e999", "-1e-999", "123456789012345678901234567890", "0.1", "1.0", "17"])
def test_numbers_are_printed_exactly(command_line: CommandLine, number: str) -> None:
    command_line.run_ok("send", "numbers", f'{{"n": {number}}}', "--content-type", "application/json")
    printed = command_line.run_ok("receive", "numbers", "--json")
    (shown,) = re.findall(r'"n": ?([^}]*)}', printed)
    assert Decimal(shown) == Decimal(number)
    assert "Infinity" not in printed


@pytest.mark.parametrize("body", ['{"order":  17, "total": 1.0e2}', "[\n  1\n]", '{"a": 1, "a": 2}', "null"])
def test_a_json_body_is_printed_as_it_was_sent(command_line: CommandLine, body: str) -> None:
    command_line.run_ok("send", "written", body, "--content-type", "application/json")
    assert command_line.run_ok("receive", "written", "--then", "abandon") == f"{body}\n"
    assert command_line.run_ok("receive", "written", "--raw", "--receiver", "clerk", "--then", "none") == body
    assert command_line.run_ok("recover", "written", "--raw", "--receiver", "clerk") == body
    command_line.run_ok("queue", "purge", "written", "--state", "locked", "--yes")


def test_a_message_without_a_body_prints_an_empty_line(command_line: CommandLine) -> None:
    httpx.post(f"{command_line.url}/v1/queues/bodiless/messages", json={}, timeout=60).raise_for_status()
    assert command_line.run_ok("receive", "bodiless") == "\n"
    (shown,) = command_line.read_json("queue", "show", "bodiless")
    assert set(shown["counts"].values()) == {0}


@pytest.mark.parametrize(
    ("action", "state"),
    [("abandon", "available"), ("dead-letter", "dead_lettered"), ("defer", "deferred"), ("none", "locked")],
)
def test_a_received_message_is_settled_as_requested(command_line: CommandLine, action: str, state: str) -> None:
    command_line.run_ok("send", action, "work")
    (received,) = command_line.read_json("receive", action, "--then", action)
    assert (received["body"], received["state"]) == ("work", "locked")
    (browsed,) = command_line.read_json("browse", action)
    assert browsed["state"] == state


def test_a_deferred_message_is_received_by_its_number(command_line: CommandLine) -> None:
    command_line.run_ok("send", "later", "work")
    done = command_line.run("receive", "later", "--then", "defer")
    number = done.stderr.split()[-1]
    assert done.stderr == f"deferred: receive it with --number {number}\n"
    assert command_line.run_ok("receive", "later") == ""
    assert command_line.run_ok("receive", "later", "--number", number) == "work\n"


def test_settlements_that_are_refused_are_printed(command_line: CommandLine) -> None:
    command_line.run_ok("send", "purged", "--lines", stdin=b"\n".join([b"x" * 100_000] * 2))
    with subprocess.Popen(
        [PROGRAM, "receive", "purged", "--max", "2"],
        env=environment(url=command_line.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.read(1) == b"x"  # the rest of the output fills the pipe, so nothing is settled yet
        command_line.run_ok("queue", "purge", "purged", "--state", "locked", "--yes")
        _, errors = receiver.communicate(timeout=TIMEOUT_SECONDS)
    assert receiver.returncode == 1
    assert [line.partition(b":")[0] for line in errors.splitlines()] == [b"lock-lost"] * 2


def test_a_body_that_is_given_twice_is_refused(command_line: CommandLine) -> None:
    (command_line.directory / "body").write_bytes(b"x")
    done = command_line.run("send", "twice-given", "x", "--file", "body")
    assert (done.returncode, "given twice" in done.stderr) == (2, True)


@pytest.mark.parametrize("option", [("--max", "2"), ("--wait", "1"), ("--dead-letter",)])
def test_number_excludes_other_ways_to_select_messages(command_line: CommandLine, option: tuple[str, ...]) -> None:
    done = command_line.run("receive", "later", "--number", "1", *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert option[0] in done.stderr


def test_received_messages_are_completed_by_default(command_line: CommandLine) -> None:
    command_line.run_ok("send", "done", "work")
    command_line.run_ok("receive", "done", "--wait", "1")
    assert command_line.read_json("browse", "done") == []


def test_dead_letters_are_received(command_line: CommandLine) -> None:
    command_line.run_ok("send", "twice", "work")
    command_line.run_ok("receive", "twice", "--then", "dead-letter")
    assert command_line.run_ok("receive", "twice") == ""
    assert command_line.run_ok("receive", "twice", "--dead-letter") == "work\n"


def test_messages_are_browsed_by_state_filter_and_limit(command_line: CommandLine) -> None:
    command_line.run_ok("send", "seen", "--lines", stdin=b"a\nbb\ncc\n")
    assert [item["body"] for item in command_line.read_json("browse", "seen", "--limit", "2")] == ["a", "bb"]
    long = ("--filter", "message.body_bytes == 2")
    assert [item["body"] for item in command_line.read_json("browse", "seen", *long)] == ["bb", "cc"]
    assert command_line.read_json("browse", "seen", "--state", "locked") == []
    assert "sequence_number" in command_line.run_ok("browse", "seen")
    assert command_line.run_refused("browse", "seen", "--filter", "message.").startswith("invalid-request: ")


def test_a_refusal_is_a_problem_document_with_the_json_option(command_line: CommandLine) -> None:
    problem = json.loads(command_line.run_refused("browse", "nowhere", "--json"))
    assert (problem["code"], problem["status"]) == ("queue-not-found", 404)


def test_an_unreachable_server_is_named(command_line: CommandLine) -> None:
    error = command_line.run_refused("queue", "list", "--url", "http://127.0.0.1:1")
    assert error.startswith("No answer from http://127.0.0.1:1: ")


def test_the_command_line_knows_every_settlement_of_the_api() -> None:
    tags = {str(settlement.__struct_config__.tag).replace("_", "-") for settlement in get_args(Settlement)}
    assert {action.value for action in SettlementAction} - {"none"} == tags - {"renew"}
