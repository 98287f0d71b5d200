"""`peeklock execute` at a real server."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import CommandLine


def test_a_message_is_completed_together_with_a_send(command_line: CommandLine, tmp_path: Path) -> None:
    command_line.run_ok("send", "orders", "order")
    (order,) = command_line.read_json("receive", "orders", "--then", "none")
    request = tmp_path / "request.json"
    settlement = {"queue": "orders", "lock_token": order["lock_token"], "action": "complete"}
    request.write_text(json.dumps({"settlements": [settlement], "sends": [{"queue": "invoices", "body": "invoice"}]}))

    arguments = ("execute", str(request), "--idempotency-key", "once")
    (done,) = command_line.read_json(*arguments)
    assert [settled["outcome"] for settled in done["settlements"]] == ["completed"]
    assert command_line.read_json(*arguments) == [done]
    (invoice,) = command_line.read_json("receive", "invoices")
    assert invoice["sequence_number"] == done["sends"][0]["sequence_number"]

    refused = command_line.run_refused("execute", str(request))
    assert refused.startswith("already-settled: ")
    assert "at #/body/settlements/0" in refused
