"""A refused body or query is explained: which field, what it must be, and what it was."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from app.domain.message import MAX_PROPERTIES
from app.wire.decode_errors import invalid_request
from app.wire.field_types import Properties
from app.wire.message_fields import MessageToSend
from app.wire.messages import EditMessage, ReceiveMessages
from app.wire.queues import QueueSettingsBody
from app.wire.sending import SendBatch
from app.wire.settlements import Settlement
from app.wire.topics import TopicSettingsBody
from app.wire.transactions import OpenTransaction


def refused(shape: Any, body: str, *whole: str) -> tuple[str, str]:
    """Return where a body is refused, and why."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(body, type=shape)
    (fault,) = invalid_request(caught.value, shape, *whole).field_errors
    return fault.pointer, fault.detail


@pytest.mark.parametrize(
    ("shape", "body", "pointer", "detail"),
    [
        (MessageToSend, '{"bdy": 1}', "/bdy", "The body has no field `bdy`. Did you mean `body`?"),
        (
            QueueSettingsBody,
            '{"lock_seconds": 9}',
            "/lock_seconds",
            "The body has no field `lock_seconds`. Did you mean ",
        ),
        (TopicSettingsBody, '{"x": 1}', "/x", "The body has no field `x`. Its fields are `description` and `labels`."),
        (OpenTransaction, '{"a/b": 1}', "/a~1b", "The body has no field `a/b`. Its fields are `timeout_seconds`."),
        (
            QueueSettingsBody,
            '{"retry": {"kind": "fixed", "delay_second": 1}}',
            "/retry/delay_second",
            "`retry` has no field `delay_second`. Did you mean `delay_seconds`?",
        ),
        (
            QueueSettingsBody,
            '{"retry": {"kind": "none", "delay_seconds": 1}}',
            "/retry/delay_seconds",
            "`retry` has no field `delay_seconds`. It belongs to another `kind`.",
        ),
        (
            Settlement,
            '{"action": "release", "lock_token": "1.00", "delay_seconds": 1}',
            "/delay_seconds",
            "The body has no field `delay_seconds`. It belongs to another `action`.",
        ),
        (SendBatch, "{}", "/messages", "The body needs the field `messages`."),
        (QueueSettingsBody, '{"retry": {}}', "/retry/kind", "`retry` needs the field `kind`."),
    ],
)
def test_the_fields_of_an_object_are_named(shape: Any, body: str, pointer: str, detail: str) -> None:
    place, sentence = refused(shape, body)
    assert place == pointer
    assert sentence.startswith(detail)


@pytest.mark.parametrize(
    ("shape", "body", "detail"),
    [
        (ReceiveMessages, '{"mode": "peek"}', "`mode` must be `peek_lock` or `receive_and_delete`, not 'peek'."),
        (
            QueueSettingsBody,
            '{"status": "paused"}',
            "`status` must be `active`, `send_disabled`, `receive_disabled` or `disabled`, not 'paused'.",
        ),
        (
            Settlement,
            '{"action": "finish"}',
            "`action` must be `complete`, `abandon`, `dead_letter`, `defer`, `release` or `renew`, not 'finish'.",
        ),
        (Settlement, '{"action": 5}', "`action` must be a string."),
        (
            QueueSettingsBody,
            '{"retry": {"kind": "random"}}',
            "`retry.kind` must be `none`, `fixed`, `linear`, `exponential` or `list`, not 'random'.",
        ),
    ],
)
def test_the_choices_of_a_field_are_listed(shape: Any, body: str, detail: str) -> None:
    assert refused(shape, body)[1] == detail


def test_a_long_wrong_choice_is_shortened() -> None:
    detail = refused(ReceiveMessages, f'{{"mode": "{"x" * 10_000}"}}')[1]
    assert detail.endswith("xxx [...].")
    assert len(detail) < 200


@pytest.mark.parametrize(
    ("shape", "body", "pointer", "detail"),
    [
        (ReceiveMessages, "[]", "", "The body must be an object, not an array."),
        (ReceiveMessages, '{"max_messages": "9"}', "/max_messages", "`max_messages` must be an integer, not a string."),
        (ReceiveMessages, '{"max_messages": 1.5}', "/max_messages", "`max_messages` must be an integer, not a number."),
        (
            ReceiveMessages,
            '{"wait_seconds": true}',
            "/wait_seconds",
            "`wait_seconds` must be a number or null, not a boolean.",
        ),
        (
            EditMessage,
            '{"available_at": 3}',
            "/available_at",
            "`available_at` must be a time as in RFC 3339 or null, not an integer.",
        ),
        (
            QueueSettingsBody,
            '{"retry": {"kind": "list", "delays_seconds": [1, "2"]}}',
            "/retry/delays_seconds/1",
            "`retry.delays_seconds[1]` must be a number, not a string.",
        ),
    ],
)
def test_types_have_their_names_in_json(shape: Any, body: str, pointer: str, detail: str) -> None:
    assert refused(shape, body) == (pointer, detail)


@pytest.mark.parametrize(
    ("shape", "body", "detail"),
    [
        (ReceiveMessages, '{"max_messages": 0}', "`max_messages` must be an integer of at least 1."),
        (ReceiveMessages, '{"lock_seconds": 0.5}', "`lock_seconds` must be a number of at least 1."),
        (MessageToSend, '{"priority": 99999999999999999999}', "`priority` must be an integer of at most 9."),
        (MessageToSend, '{"message_id": ""}', "`message_id` must have at least 1 character."),
        (MessageToSend, f'{{"group_id": "{"x" * 129}"}}', "`group_id` must have at most 128 characters."),
        (ReceiveMessages, '{"sequence_numbers": []}', "`sequence_numbers` must have at least 1 entry."),
        (MessageToSend, '{"delay_seconds": 1e999}', "`delay_seconds` is out of range."),
        (MessageToSend, '{"subject": "a\\u0000b"}', "`subject` must match the pattern '^[^\\x00-\\x1f\\x7f]*$'."),
        (
            EditMessage,
            '{"available_at": "tomorrow"}',
            "`available_at` must be a time as in RFC 3339, such as 2030-01-01T00:00:00Z.",
        ),
        (
            EditMessage,
            '{"available_at": "2030-01-01T00:00:00"}',
            "`available_at` must be a time with an offset, such as 2030-01-01T00:00:00Z.",
        ),
    ],
)
def test_the_limits_of_a_field_are_said(shape: Any, body: str, detail: str) -> None:
    assert refused(shape, body)[1] == detail


@pytest.mark.parametrize(
    "words",
    [
        "Object contains unknown field `x`",
        "Object missing required field `x`",
        "paused - at `$.retry",
        "x` - at `$.retry`",
    ],
)
def test_words_of_the_decoder_in_a_value_are_only_quoted(words: str) -> None:
    pointer, detail = refused(QueueSettingsBody, json.dumps({"status": words}))
    assert (pointer, detail.startswith("`status` must be `active`, ")) == ("/status", True)
    assert detail.endswith(f", not '{words}'.")


def test_properties_are_counted_as_members() -> None:
    many = json.dumps({f"p{number}": number for number in range(MAX_PROPERTIES + 1)})
    assert refused(Properties, many, "`properties`") == (
        "",
        f"`properties` must have at most {MAX_PROPERTIES} members.",
    )


def test_a_fault_says_whether_it_is_in_a_name_or_a_value() -> None:
    assert refused(Properties, '{"": 1}', "`properties`")[1] == "A name in `properties` must have at least 1 character."
    assert refused(Properties, '{"a": []}', "`properties`")[1] == (
        "A value in `properties` must be a boolean, an integer, a number, a string or null, not an array."
    )
