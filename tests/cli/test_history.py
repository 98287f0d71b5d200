"""`peeklock history` at a real server."""

from __future__ import annotations

from tests.cli.conftest import CommandLine


def test_what_happened_to_a_message_is_shown(command_line: CommandLine) -> None:
    command_line.run_ok("queue", "create", "recorded", "--set", "history=true")
    (sent,) = command_line.read_json("send", "recorded", "body")
    number = str(sent["sequence_number"])
    command_line.run_ok("receive", "recorded", "--receiver", "worker")

    events = command_line.read_json("history", "recorded", number)
    assert [event["event"] for event in events] == ["sent", "delivered", "settled"]
    assert len(command_line.read_json("history", "recorded", number, "--limit", "2")) == 2
    assert "worker" in command_line.run_ok("history", "recorded", number)
    assert command_line.run_refused("history", "recorded", "1000000").startswith("message-not-found: ")
