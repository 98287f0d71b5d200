"""`peeklock transaction` at a real server."""

from __future__ import annotations

from tests.cli.conftest import CommandLine


def test_a_message_is_completed_together_with_a_send(command_line: CommandLine) -> None:
    command_line.run_ok("send", "orders", "order")
    (opened,) = command_line.read_json("transaction", "open", "--timeout", "30")
    transaction = opened["id"]
    assert command_line.run_ok("send", "invoices", "invoice", "--transaction", transaction).startswith("uncommitted (")
    command_line.run_ok("receive", "orders", "--transaction", transaction)
    (shown,) = command_line.read_json("transaction", "get", transaction)
    assert [member["queue"] for member in shown["items"]] == ["invoices", "orders"]
    assert command_line.read_json("receive", "invoices") == []
    assert command_line.run_ok("transaction", "commit", transaction).strip() == "committed: 1 settled, 1 sent"
    (invoice,) = command_line.read_json("receive", "invoices")
    assert invoice["state"] == "locked"
    refused = command_line.run_refused("transaction", "rollback", transaction)
    assert refused.startswith("transaction-ended: ")


def test_lines_are_sent_with_a_transaction_or_not_at_all(command_line: CommandLine) -> None:
    transaction = command_line.run_ok("transaction", "open").strip()
    command_line.run_ok("send", "orders", "one\ntwo", "--lines", "--transaction", transaction)
    assert command_line.run_ok("transaction", "rollback", transaction).strip() == "rolled back"
    assert command_line.read_json("receive", "orders", "--max", "9") == []
    refused = command_line.run_refused("transaction", "commit", transaction)
    assert refused.startswith("transaction-rolled-back: ")


def test_a_publish_waits_for_the_commit(command_line: CommandLine) -> None:
    command_line.run_ok("topic", "create", "events")
    command_line.run_ok("subscription", "create", "events", "all")
    transaction = command_line.run_ok("transaction", "open").strip()
    published = command_line.run_ok("publish", "events", "news", "--transaction", transaction)
    assert published.endswith("to 1 queue\n")
    assert command_line.read_json("receive", "events.all") == []
    command_line.run_ok("transaction", "commit", transaction)
    assert len(command_line.read_json("receive", "events.all")) == 1
