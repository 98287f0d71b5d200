"""`peeklock queue ...` and `peeklock dead-letter ...` at a real server."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.cli.conftest import CommandLine


def test_a_queue_is_created_shown_changed_listed_and_deleted(command_line: CommandLine) -> None:
    (made,) = command_line.read_json(
        "queue", "create", "life", "--set", "lock_duration_seconds=45", "--set", "status=disabled"
    )
    assert (made["name"], made["lock_duration_seconds"], made["status"]) == ("life", 45, "disabled")

    (changed,) = command_line.read_json("queue", "update", "life", "--set", "status=active")
    assert (changed["lock_duration_seconds"], changed["status"]) == (45, "active")

    (shown,) = command_line.read_json("queue", "show", "life")
    assert shown["counts"]["available"] == 0
    assert "life" in [item["name"] for item in command_line.read_json("queue", "list")]
    assert "lock_duration_seconds" in command_line.run_ok("queue", "show", "life")
    listed = command_line.run_ok("queue", "list")
    assert "dead_lettered" in listed
    assert "uncommitted" in listed

    command_line.run_ok("queue", "delete", "life", "--yes")
    assert command_line.run_refused("queue", "show", "life").startswith("queue-not-found: ")


def test_consumers_of_a_queue_are_listed(command_line: CommandLine) -> None:
    command_line.run_ok("queue", "create", "consumed")
    assert command_line.read_json("queue", "consumers", "consumed") == []
    report = {"state": "paused", "reason": "The target answered 500."}
    httpx.put(f"{command_line.url}/v1/queues/consumed/consumers/web-1", json=report).raise_for_status()
    (listed,) = command_line.read_json("queue", "consumers", "consumed")
    assert (listed["consumer"], listed["reason"]) == ("web-1", report["reason"])
    heading, row = command_line.run_ok("queue", "consumers", "consumed").splitlines()
    assert heading.split()[:3] == ["consumer", "principal", "state"]
    assert row.startswith("web-1")
    assert row.rstrip().endswith("The target answered 500.")


def test_a_change_can_keep_the_locks_of_receivers(command_line: CommandLine) -> None:
    command_line.run_ok("send", "held", "work")
    (message,) = command_line.read_json("receive", "held", "--then", "none")
    command_line.run_ok("queue", "update", "held", "--lock-duration-seconds", "60", "--keep-locks")
    command_line.run_ok("complete", "held", message["lock_token"])


def test_a_deletion_prints_a_document_with_the_json_option(command_line: CommandLine) -> None:
    command_line.run_ok("queue", "create", "gone")
    assert command_line.read_json("queue", "delete", "gone", "--yes") == [{"deleted": "gone"}]
    assert (
        json.loads(command_line.run_refused("queue", "delete", "gone", "--yes", "--json"))["code"] == "queue-not-found"
    )


def test_tables_show_values_in_words(command_line: CommandLine) -> None:
    settings = ("--set", "dead_letter_on_expiry=true", "--set", 'retry={"kind": "fixed", "delay_seconds": 5}')
    lines = [line.split(maxsplit=1) for line in command_line.run_ok("queue", "create", "words", *settings).splitlines()]
    shown = {line[0]: line[1].strip() for line in lines if len(line) > 1}
    assert (shown["dead_letter_on_expiry"], shown["retry"]) == ("yes", "fixed, delay_seconds 5.0")
    command_line.run_ok("queue", "update", "words", "--set", "dead_letter_on_expiry=false")
    assert "dead_letter_on_expiry               no" in command_line.run_ok("queue", "show", "words")


def test_each_row_of_a_table_is_one_line(command_line: CommandLine) -> None:
    """A row that is wide for a terminal too, so that its ids can be copied and searched for."""
    name = "wide-" + "x" * 120
    command_line.run_ok("send", name, "body")
    (message,) = command_line.read_json("browse", name)
    heading, row = (line.split() for line in command_line.run_ok("browse", name).splitlines())
    assert heading[:2] == ["sequence_number", "state"]
    assert {message["message_id"], message["enqueued_at"]} < set(row)
    assert name in [line.split()[0] for line in command_line.run_ok("queue", "list").splitlines()]


@pytest.mark.parametrize("option", ["--key", "--api-key"])
@pytest.mark.parametrize("command", [("queue", "list"), ("key", "list")])
def test_every_command_accepts_both_spellings_of_the_key_option(
    command_line: CommandLine, command: tuple[str, ...], option: str
) -> None:
    assert command_line.run_refused(*command, option, "pk_x").startswith("unauthenticated: ")
    assert "--api-key, --key" in " ".join(command_line.run_ok(*command, "--help").split())


def test_a_queue_is_deleted_only_after_confirmation(command_line: CommandLine) -> None:
    command_line.run_ok("queue", "create", "kept")
    assert command_line.run("queue", "delete", "kept", stdin=b"n\n").returncode == 1
    command_line.run_ok("queue", "show", "kept")
    command_line.run_ok("queue", "delete", "kept", stdin=b"y\n")


def test_settings_that_are_refused_are_named(command_line: CommandLine) -> None:
    error = command_line.run_refused("queue", "create", "bad", "--set", "lock_duration_seconds=-1")
    assert error.startswith("invalid-request: ")
    assert "at #/body/lock_duration_seconds" in error
    assert "colour" in command_line.run_refused("queue", "create", "bad", "--set", "colour=red")
    done = command_line.run("queue", "create", "bad", "--set", "colour")
    assert (done.returncode, "NAME=VALUE" in done.stderr) == (2, True)


def test_messages_are_purged_by_filter_limit_and_state(command_line: CommandLine) -> None:
    command_line.run_ok("send", "full", "--lines", stdin=b"1\n22\n3\n4\n5\n")
    assert command_line.read_json("queue", "purge", "full", "--yes", "--filter", "message.body_bytes == 2") == [
        {"removed": 1}
    ]
    assert command_line.run_ok("queue", "purge", "full", "--yes", "--limit", "3") == "3 removed\n"
    assert command_line.read_json("queue", "purge", "full", "--yes", "--state", "scheduled") == [{"removed": 0}]
    assert command_line.read_json("queue", "purge", "full", "--yes") == [{"removed": 1}]


def test_dead_letters_are_listed_and_redriven(command_line: CommandLine) -> None:
    command_line.run_ok("send", "dead", "--lines", stdin=b"a\nbb\n")
    command_line.run_ok("receive", "dead", "--max", "2", "--then", "dead-letter", "--reason", "no-such-article")
    listed = command_line.read_json("dead-letter", "list", "dead")
    assert [item["dead_letter_reason"] for item in listed] == ["no-such-article"] * 2
    assert "no-such-article" in command_line.run_ok(
        "dead-letter", "list", "dead", "--filter", "message.body_bytes == 1"
    )
    assert command_line.read_json("dead-letter", "redrive", "dead", "--filter", "message.body_bytes == 1") == [
        {"moved": 1}
    ]
    assert command_line.run_ok("receive", "dead") == "a\n"
    command_line.run_ok("queue", "create", "elsewhere")
    assert command_line.run_ok("dead-letter", "redrive", "dead", "--to-queue", "elsewhere") == "1 moved\n"
    assert command_line.run_ok("receive", "elsewhere") == "bb\n"


def test_the_messages_of_a_queue_are_moved(command_line: CommandLine) -> None:
    command_line.run_ok("send", "leaving", "--lines", stdin=b"a\nbb\n")
    command_line.run_ok("queue", "create", "arriving")
    (plan,) = command_line.read_json("queue", "move", "leaving", "--to-queue", "arriving", "--dry-run")
    assert (plan["count"], plan["bytes"], plan["complete"]) == (2, 3, True)
    assert command_line.run_ok("queue", "move", "leaving", "--to-queue", "arriving") == "2 moved, completed\n"
    assert command_line.run_ok("receive", "arriving", "--max", "2") == "a\nbb\n"
    (task,) = command_line.read_json("queue", "moves", "leaving")
    assert (task["state"], task["to_queue"], task["moved"]) == ("completed", "arriving", 2)
    assert task["id"] in command_line.run_ok("queue", "moves", "leaving")


def test_a_move_is_cancelled(command_line: CommandLine) -> None:
    command_line.run_ok("send", "slow", "--lines", stdin=b"a\nb\n")
    command_line.run_ok("queue", "create", "last")
    started = command_line.run_ok("queue", "move", "slow", "--to-queue", "last", "--rate", "0.001", "--no-wait")
    cancelled = command_line.run_ok("queue", "cancel-move", "slow", started.strip())
    assert cancelled in ("0 moved, cancelled\n", "1 moved, cancelled\n")
    done = command_line.run("queue", "cancel-move", "slow", "absent")
    assert (done.returncode, done.stdout) == (1, "")
    assert "move-not-found" in done.stderr


def test_a_move_that_fails_ends_with_status_1(command_line: CommandLine) -> None:
    command_line.run_ok("send", "stuck", "a")
    command_line.run_ok("queue", "create", "closed", "--set", "status=send_disabled")
    done = command_line.run("queue", "move", "stuck", "--to-queue", "closed")
    assert (done.returncode, done.stdout) == (1, "")
    assert "send-disabled" in done.stderr


@pytest.mark.parametrize("command", [("queue", "purge"), ("queue", "delete"), ("dead-letter", "redrive")], ids=" ".join)
def test_a_dry_run_shows_a_plan_and_changes_nothing(command_line: CommandLine, command: tuple[str, ...]) -> None:
    name = "planned-" + command[1]
    command_line.run_ok("send", name, "--lines", stdin=b"a\nbb\n")
    command_line.run_ok("receive", name, "--max", "2", "--then", "dead-letter")
    before = command_line.read_json("queue", "show", name)
    (plan,) = command_line.read_json(*command, name, "--dry-run")
    assert (plan["count"], plan["bytes"], plan["complete"]) == (2, 3, True)
    lines = command_line.run_ok(*command, name, "--dry-run").splitlines()
    assert lines[0] == "2 messages of 3 bytes"
    assert [line.split()[1] for line in lines[2:]] == [message["message_id"] for message in plan["sample"]]
    assert command_line.read_json("queue", "show", name) == before


def test_a_plan_of_one_byte_is_in_the_singular(command_line: CommandLine) -> None:
    command_line.run_ok("send", "single", "1")
    assert command_line.run_ok("queue", "purge", "single", "--dry-run").startswith("1 message of 1 byte\n")


def test_a_plan_counts_with_filter_and_limit(command_line: CommandLine) -> None:
    command_line.run_ok("send", "chosen", "--lines", stdin=b"1\n22\n3\n4\n")
    one = ("--filter", "message.body_bytes == 1", "--limit", "2")
    assert command_line.read_json("queue", "purge", "chosen", *one, "--dry-run")[0]["count"] == 2


def test_purged_messages_are_restored(command_line: CommandLine) -> None:
    command_line.run_ok("send", "undone", "--lines", stdin=b"a\nbb\nc\n")
    command_line.run_ok("queue", "purge", "undone", "--yes")
    assert command_line.read_json("restore", "undone", "--since", "2100-01-01T00:00:00Z") == [{"restored": 0}]
    (plan,) = command_line.read_json("restore", "undone", "--filter", "message.body_bytes == 1", "--dry-run")
    assert (plan["count"], plan["bytes"]) == (2, 2)
    assert command_line.run_ok("restore", "undone", "--filter", "message.body_bytes == 2") == "1 restored\n"
    assert command_line.read_json("restore", "undone", "--limit", "1") == [{"restored": 1}]
    assert command_line.run_ok("receive", "undone", "--max", "9") == "bb\na\n"


def test_a_list_continues_beyond_its_first_page(command_line: CommandLine) -> None:
    command_line.run_ok("send", "many", "--lines", stdin=b"x\n" * 1001)
    with httpx.Client(base_url=f"{command_line.url}/v1/queues/many", timeout=60) as queue:
        for tokens in iter(lambda: _received(queue), []):
            settlements = [{"action": "dead_letter", "lock_token": token} for token in tokens]
            queue.post("/settle", json={"settlements": settlements}).raise_for_status()
    assert len(command_line.read_json("dead-letter", "list", "many", "--limit", "5000")) == 1001
    assert len(command_line.read_json("dead-letter", "list", "many", "--limit", "1000")) == 1000
    assert len(command_line.read_json("browse", "many", "--limit", "1001")) == 1001


def _received(queue: httpx.Client) -> list[str]:
    answer = queue.post("/messages/receive", json={"max_messages": 100})
    return [message["lock_token"] for message in answer.raise_for_status().json()["messages"]]


@pytest.mark.parametrize(
    "command",
    [
        ("queue", "create", "odd", "--set", "lock_duration_seconds=NaN"),
        ("dead-letter", "redrive", "odd", "--rate", "inf"),
        ("key", "create", "--principal", "odd", "--days", "nan"),
    ],
)
def test_values_that_a_request_cannot_express_are_refused(command_line: CommandLine, command: tuple[str, ...]) -> None:
    done = command_line.run(*command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("This cannot be sent: ")
