"""`peeklock send --synchronous` and `peeklock complete` at a real server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.cli.conftest import CommandLine
from tests.peeklock_process import run_peeklock

SYNCHRONOUS = ("--synchronous", "--wait", "45")


@pytest.fixture
def terminal() -> Iterator[ThreadPoolExecutor]:
    """Another terminal."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def send(
    terminal: ThreadPoolExecutor, command_line: CommandLine, queue: str, *options: str
) -> Future[subprocess.CompletedProcess[str]]:
    """Send in the other terminal."""
    command_line.run_ok("queue", "create", queue, "--if-not-exists")
    words = ("send", queue, "question", *SYNCHRONOUS, *options)
    return terminal.submit(run_peeklock, *words, directory=command_line.directory, url=command_line.url)


def complete(command_line: CommandLine, queue: str, *options: str) -> Sequence[str]:
    """Receive the message, and complete it. Return the lines that were printed."""
    (message,) = command_line.read_json("receive", queue, "--wait", "45", "--then", "none")
    return command_line.run_ok("complete", queue, message["lock_token"], *options).splitlines()


@pytest.mark.parametrize(("reply", "printed"), [('"yes"', "yes"), ('{"total": 17}', '{"total":17}'), ("null", "null")])
def test_a_sender_that_waits_prints_the_reply(
    command_line: CommandLine, terminal: ThreadPoolExecutor, reply: str, printed: str
) -> None:
    sending = send(terminal, command_line, "replies")
    assert complete(command_line, "replies", "--reply", reply)[0].startswith("completed ")
    assert sending.result().stdout == f"{printed}\n"


def test_without_a_reply_the_outcome_is_printed(command_line: CommandLine, terminal: ThreadPoolExecutor) -> None:
    sending = send(terminal, command_line, "outcomes")
    complete(command_line, "outcomes")
    assert sending.result().stdout.startswith("completed ")


def test_the_json_option_prints_the_whole_answer(command_line: CommandLine, terminal: ThreadPoolExecutor) -> None:
    sending = send(terminal, command_line, "answers", "--json")
    (settled,) = complete(command_line, "answers", "--reply", "[1]", "--json")
    answer = json.loads(sending.result().stdout)
    assert (answer["outcome"], answer["reply"]) == ("completed", [1])
    assert answer["sequence_number"] == json.loads(settled)["sequence_number"]


def test_a_sender_without_a_receiver_hears_so(command_line: CommandLine) -> None:
    refused = command_line.run_refused("send", "silent", "question", "--synchronous", "--wait", "0.1")
    assert refused.startswith("no-receiver: ")
    assert command_line.run_ok("receive", "silent") == ""


def test_what_contradicts_a_synchronous_send_is_refused(command_line: CommandLine) -> None:
    refused = command_line.run_refused("send", "contradictions", "question", "--synchronous", "--delay", "5")
    assert "at #/body/delay_seconds" in refused
    for options in (("--synchronous", "--lines"), ("--wait", "5")):
        assert command_line.run("send", "contradictions", "question", *options).returncode == 2


def test_a_reply_that_is_not_json_is_refused(command_line: CommandLine) -> None:
    done = command_line.run("complete", "replies", "token", "--reply", "yes")
    assert (done.returncode, done.stdout) == (2, "")
    assert "yes is not JSON" in done.stderr
