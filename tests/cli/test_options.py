"""Every setting and every field of a message has an option of its name, with help."""

from __future__ import annotations

import os
from base64 import b64decode
from typing import Any

import msgspec
import pytest

from app.cli.lazy_commands import COMMANDS, LazyCommands
from app.wire.queues import QueueSettingsBody
from app.wire.sending import SendMessage
from app.wire.settlements import AbandonLock, CompleteLock, DeadLetterLock, DeferLock, ReleaseLock, RenewLock
from app.wire.topics import PublishMessage, SubscriptionSettingsBody, TopicSettingsBody
from developing import request_options
from tests.cli.command_names import typed_words
from tests.cli.conftest import CommandLine
from tests.walks import for_each

STRUCTS = {
    ("queue", "create"): (QueueSettingsBody, {"retry": "retry_kind"}),
    ("queue", "update"): (QueueSettingsBody, {"retry": "retry_kind"}),
    ("topic", "create"): (TopicSettingsBody, {}),
    ("topic", "update"): (TopicSettingsBody, {}),
    ("subscription", "create"): (SubscriptionSettingsBody, {}),
    ("subscription", "update"): (SubscriptionSettingsBody, {}),
    ("send",): (SendMessage, {"body": "file", "body_base64": "file", "delivery": "synchronous"}),
    ("publish",): (
        PublishMessage,
        {"body": "file", "body_base64": "file", "delivery": "content_type", "wait_seconds": "content_type"},
    ),
    ("complete",): (CompleteLock, {}),
    ("abandon",): (AbandonLock, {}),
    ("defer",): (DeferLock, {}),
    ("release",): (ReleaseLock, {}),
    ("dead-letter", "add"): (DeadLetterLock, {}),
    ("renew",): (RenewLock, {}),
}
"""The struct of each command, and the options of fields that have another name. A publish does not wait."""


def parameters(words: tuple[str, ...]) -> dict[str, object]:
    return {parameter.name: parameter for parameter in command_at(words).params}


def command_at(words: tuple[str, ...]) -> Any:
    found = LazyCommands(COMMANDS)
    for word in words[:-1]:
        found = found[word].commands
    return found[words[-1]]


@pytest.mark.parametrize("words", STRUCTS, ids=" ".join)
def test_each_field_of_a_request_has_an_option(words: tuple[str, ...]) -> None:
    struct, renamed = STRUCTS[words]
    expected = {renamed.get(field.name, field.name) for field in msgspec.structs.fields(struct)}
    assert expected <= parameters(words).keys()


def test_the_options_of_requests_are_written_from_their_shapes() -> None:
    assert request_options.FILE.read_text() == request_options.module_text(), "run `python3 dev.py openapi`"


def test_every_option_of_every_command_has_help() -> None:
    options = [(words, option) for words in typed_words(COMMANDS) for option in command_at(words).params]
    assert [f"{' '.join(words)} {option.name}" for words, option in options if not option.help] == []


@for_each("words", sorted(typed_words(COMMANDS)), " ".join)
def test_a_command_says_what_it_does(words: tuple[str, ...]) -> None:
    assert command_at(words).name == words[-1]
    assert (command_at(words).help or "").rstrip().endswith(".")


def test_every_setting_of_a_queue_is_set_by_its_option(command_line: CommandLine) -> None:
    command_line.run_ok("queue", "create", "other", "--if-not-exists")
    options = (
        "--lock-duration-seconds=45", "--max-delivery-count=5", "--default-ttl-seconds=60", "--dead-letter-on-expiry",
        "--duplicate-detection-window-seconds=10", "--retry-kind=exponential", "--retry-first-seconds=1",
        "--retry-factor=3", "--retry-max-seconds=50", "--retry-jitter=0.5", "--archive-retention-seconds=99",
        "--max-message-bytes=1000", "--max-messages=7", "--status=send_disabled", "--redelivery=on_request",
        "--description=first", "--group-in-flight=1", "--history", "--forward-to=other",
        "--forward-dead-letters-to=other", "--default-delay-seconds=5", "--default-wait-seconds=6",
        '--labels={"team": "payments"}',
    )  # fmt: skip
    (made,) = command_line.read_json("queue", "create", "optional", *options)
    defaults = command_line.read_json("queue", "show", "other")[0]
    unchanged = [name for name, value in defaults.items() if name in made and made[name] == value]
    assert unchanged == ["undeliverable"], "it is no setting"
    assert made["retry"] == {"kind": "exponential", "first_seconds": 1, "factor": 3, "max_seconds": 50, "jitter": 0.5}


def test_a_reset_setting_has_its_default_again(command_line: CommandLine) -> None:
    command_line.run_ok(
        "queue", "create", "resets", "--max-messages", "7", "--retry-kind=list", "--retry-delays-seconds=1"
    )
    (changed,) = command_line.read_json("queue", "update", "resets", "--reset", "max-messages", "--no-history")
    assert (changed["max_messages"], changed["retry"]) == (None, {"kind": "list", "delays_seconds": [1]})


@pytest.mark.parametrize(
    "option", [("--max-messages", "many"), ("--status", "closed"), ("--retry-kind", "often"), ("--colour", "red")]
)
def test_an_option_of_another_type_is_an_error_of_usage(command_line: CommandLine, option: tuple[str, ...]) -> None:
    done = command_line.run("queue", "create", "odd", *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert option[0] in done.stderr


def test_every_field_of_a_message_is_sent_by_its_option(command_line: CommandLine) -> None:
    options = (
        "--message-id=m1", "--correlation-id=c1", "--subject=Zürich", "--reply-to=answers", "--to=east",
        "--group-id=g1", "--priority=7", "--ttl-seconds=600", "--available-at=2100-01-01T00:00:00Z",
        "--content-type=application/json", '--properties={"Size": 3}', "--property", "Region=eu",
    )  # fmt: skip
    command_line.run_ok("send", "fields", '{"n": 1e999}', *options)
    (sent,) = command_line.read_json("browse", "fields")
    given = {
        "message_id": "m1", "correlation_id": "c1", "subject": "Zürich", "reply_to": "answers", "to": "east",
        "group_id": "g1", "priority": 7, "available_at": "2100-01-01T00:00:00.000000Z", "state": "scheduled",
        "content_type": "application/json", "properties": {"Size": 3, "Region": "eu"},
    }  # fmt: skip
    assert {name: sent[name] for name in given} == given
    assert sent["expires_at"].startswith("2100-01-01T00:10:00")
    assert '"n":1E+999' in command_line.run_ok("browse", "fields", "--json").replace(" ", "")


def test_a_volatile_message_is_accepted(command_line: CommandLine) -> None:
    assert command_line.run_ok("send", "swift", "x", "--durability", "volatile").startswith("accepted (")


def test_bytes_stay_bytes(command_line: CommandLine) -> None:
    content = bytes(range(256)) + b"\r\n\n"
    (command_line.directory / "body").write_bytes(content)
    command_line.run_ok("send", "bytes", "--file", "body")
    command_line.run_ok("send", "bytes", stdin=content)
    command_line.run_ok("send", "bytes", os.fsdecode(content[1:]))
    found = [b64decode(message["body_base64"]) for message in command_line.read_json("browse", "bytes")]
    assert found == [content, content, content[1:]]
    command_line.run_ok("send", "raw", stdin=b"no line break")
    command_line.run_ok("send", "raw", stdin=b"")
    assert command_line.run_ok("receive", "raw", "--max", "2", "--raw") == "no line break"


def test_a_message_is_published_with_its_fields(command_line: CommandLine) -> None:
    command_line.run_ok("topic", "create", "fielded", "--description", "all fields")
    command_line.run_ok("subscription", "create", "fielded", "all", '--set-properties={"seen": true}')
    command_line.run_ok("publish", "fielded", "x", "--subject", "news", "--priority", "9")
    (copy,) = command_line.read_json("browse", "fielded.all")
    assert (copy["subject"], copy["priority"], copy["properties"]) == ("news", 9, {"seen": True})
