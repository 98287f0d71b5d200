"""Answers of older servers are understood: a setting that an answer leaves out has its default (docs/guides/stability.md)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from peeklock_client.generated import answers

from developing.paths import OPENAPI

SCHEMAS: dict[str, Any] = json.loads(OPENAPI.read_text())["components"]["schemas"]
SETTINGS = {
    "QueueView": "QueueSettingsBody",
    "QueueStatusView": "QueueSettingsBody",
    "TopicView": "TopicSettingsBody",
    "SubscriptionView": "SubscriptionSettingsBody",
}
QUEUE = {
    "lock_duration_seconds": 30.0, "max_delivery_count": 10, "default_ttl_seconds": None, "dead_letter_on_expiry": False,
    "duplicate_detection_window_seconds": None, "retry": {"kind": "none"}, "archive_retention_seconds": 604800.0,
    "max_message_bytes": 1048576, "max_messages": None, "status": "active", "redelivery": "automatic", "description": "",
    "group_in_flight": None, "history": False, "forward_to": None, "forward_dead_letters_to": None, "name": "orders",
    "created_at": "2026-11-20T10:00:00.000000Z", "updated_at": "2026-11-20T10:00:00.000000Z",
}  # fmt: skip
"""A queue as version 0.2.0 answers it."""
COUNTS = {
    "available": 1, "scheduled": 0, "locked": 0, "deferred": 0, "dead_lettered": 0, "blocked": 0, "uncommitted": 0,
}  # fmt: skip


def stated_defaults() -> list[tuple[str, str, Any]]:
    """Every setting with a default: the answer that has it, its name and its default in the document."""
    return [
        (answer, name, member["x-peeklock-default"])
        for answer, body in SETTINGS.items()
        for name, member in SCHEMAS[body]["properties"].items()
        if "x-peeklock-default" in member
    ]


def example(schema: dict[str, Any]) -> Any:
    """A value of this schema."""
    if "$ref" in schema:
        return example(SCHEMAS[schema["$ref"].rsplit("/", 1)[1]])
    if "oneOf" in schema:
        return {"kind": "none"}
    if "enum" in schema or "const" in schema:
        return schema.get("const") or schema["enum"][0]
    if schema.get("format") == "date-time":
        return QUEUE["created_at"]
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    if kind == "object":
        return {name: example(member) for name, member in schema.get("properties", {}).items()}
    return {"string": "text", "integer": 7, "number": 7.5, "boolean": True, "array": []}[kind]


def test_a_queue_of_version_0_2_has_the_defaults_of_newer_settings() -> None:
    queue = msgspec.convert(QUEUE, answers.QueueView)
    assert (queue.labels, queue.default_delay_seconds, queue.default_wait_seconds) == ({}, None, None)
    assert queue.undeliverable is UNSET


def test_the_status_and_the_list_of_queues_of_version_0_2_decode() -> None:
    status = {**QUEUE, "counts": COUNTS, "oldest_available_seconds": None}
    page = msgspec.convert({"items": [status], "next_cursor": None}, answers.QueuePage)
    assert (page.items[0].counts.available, page.items[0].labels) == (1, {})


def test_a_topic_of_version_0_2_decodes() -> None:
    members = {name: QUEUE[name] for name in ("name", "description", "created_at", "updated_at")}
    topic = msgspec.convert(members, answers.TopicView)
    assert (topic.undeliverable, topic.labels) == (UNSET, {})


def test_the_capabilities_of_a_store_of_version_0_2_decode() -> None:
    store = msgspec.convert({"engine": "sqlite", "durable": True, "risks": []}, answers.StoreCapabilities)
    assert (store.replicated, store.accepts_durable_messages) == (UNSET, UNSET)


def test_most_settings_have_a_default() -> None:
    assert len(stated_defaults()) == 2 * len(SCHEMAS["QueueSettingsBody"]["properties"]) + 5


@pytest.mark.parametrize(("answer", "setting", "default"), stated_defaults())
def test_a_setting_that_an_answer_leaves_out_has_its_default(answer: str, setting: str, default: Any) -> None:
    whole = example(SCHEMAS[answer])
    del whole[setting]
    decoded = msgspec.convert(whole, getattr(answers, answer))
    assert msgspec.to_builtins(getattr(decoded, setting)) == default
