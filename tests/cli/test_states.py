"""`peeklock state` at a real server."""

from __future__ import annotations

import httpx

from tests.cli.conftest import CommandLine


def commit(command_line: CommandLine, number: int) -> None:
    """Process a message with a state."""
    message = {"message_id": f"m{number}"}
    httpx.post(f"{command_line.url}/v1/queues/shots/messages", json=message, timeout=60).raise_for_status()
    (message,) = command_line.read_json("receive", "shots", "--then", "none")
    body = {"state": {"key": "game.17", "if_version": number, "value": {"shots": number}}}
    path = f"/v1/queues/shots/locks/{message['lock_token']}/commit"
    httpx.post(command_line.url + path, json=body, timeout=60).raise_for_status()


def test_a_state_is_read_listed_and_deleted(command_line: CommandLine) -> None:
    for number in range(2):
        commit(command_line, number)
    (newest,) = command_line.read_json("state", "get", "game.17")
    assert (newest["version"], newest["value"]) == (2, {"shots": 1})
    (first,) = command_line.read_json("state", "get", "game.17", "--version", "1")
    assert first["value"] == {"shots": 0}
    (before,) = command_line.read_json("state", "get", "game.17", "--before-message", "m1")
    assert (before["version"], before["duplicate"]) == (1, True)
    assert [one["message_id"] for one in command_line.read_json("state", "history", "game.17")] == ["m0", "m1"]
    table = command_line.run_ok("state", "history", "game.17", "--after", "1")
    assert "m1" in table
    assert "m0" not in table
    command_line.run_ok("state", "delete", "game.17")
    assert command_line.run_refused("state", "delete", "game.17").startswith("state-not-found: ")
