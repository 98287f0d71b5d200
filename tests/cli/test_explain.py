"""`peeklock explain` at a real server."""

from __future__ import annotations

from tests.cli.conftest import CommandLine


def test_a_message_and_its_queue_are_explained(command_line: CommandLine) -> None:
    command_line.run_ok("queue", "create", "late")
    assert command_line.run_ok("explain", "late") == "The queue is empty.\n"
    (sent,) = command_line.read_json("send", "late", "body", "--delay", "3600")
    number = str(sent["sequence_number"])

    (explanation,) = command_line.read_json("explain", "late", number)
    assert explanation["reason"] == "scheduled"
    assert command_line.run_ok("explain", "late", number) == f"{explanation['text']}\n"
    (explanation,) = command_line.read_json("explain", "late")
    assert explanation["reason"] == "all_scheduled"

    transaction = command_line.run_ok("transaction", "open").strip()
    (waiting,) = command_line.read_json("send", "late", "body")
    command_line.run_ok("receive", "late", "--transaction", transaction)
    number = str(waiting["sequence_number"])
    assert f"waits for the commit of transaction {transaction}, until" in command_line.run_ok("explain", "late", number)
    assert f"waits for the commit of transaction {transaction}, until" in command_line.run_ok("explain", "late")

    assert command_line.run_refused("explain", "late", "1000000").startswith("message-not-found: ")
    assert command_line.run_refused("explain", "unknown").startswith("queue-not-found: ")
