"""`peeklock commit` at a real server."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import CommandLine


def test_a_message_is_committed_with_a_send_and_a_state(command_line: CommandLine, tmp_path: Path) -> None:
    command_line.run_ok("send", "shots", "shot")
    (shot,) = command_line.read_json("receive", "shots", "--then", "none")
    request = tmp_path / "request.json"
    state = {"key": "game.17", "if_version": 0, "value": {"target": 71}}
    request.write_text(json.dumps({"sends": [{"queue": "results", "body": "hit"}], "state": state}))

    (done,) = command_line.read_json("commit", "shots", shot["lock_token"], str(request))
    assert (done["outcome"], done["version"]) == ("completed", 1)
    (repeated,) = command_line.read_json("commit", "shots", shot["lock_token"], str(request))
    assert repeated == {**done, "replayed": True}
    (result,) = command_line.read_json("receive", "results")
    assert result["sequence_number"] == done["sends"][0]["sequence_number"]
    (stored,) = command_line.read_json("state", "get", "game.17")
    assert stored["value"] == {"target": 71}


def test_a_commit_on_an_older_version_changes_nothing(command_line: CommandLine, tmp_path: Path) -> None:
    command_line.run_ok("send", "shots", "shot")
    (shot,) = command_line.read_json("receive", "shots", "--then", "none")
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"state": {"key": "game.17", "if_version": 3, "value": 1}}))
    refused = command_line.run_refused("commit", "shots", shot["lock_token"], str(request))
    assert refused.startswith("version-conflict: ")
    assert command_line.run_refused("state", "get", "game.17", "--version", "4").startswith("state-not-found: ")
