"""Tags, and attributes of FIFO queues, in the labels of a queue."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.queue import MAX_LABELS_BYTES, QueueSettings
from app.domain.refusals import InvalidRequest
from app.sqs.errors import InvalidAttributeName, InvalidAttributeValue
from app.sqs.queue_attributes import changed_settings
from app.sqs.queue_labels import deduplication_scope, is_content_based, tags_of, with_tags, without_tags
from app.wire.queues import QueueSettingsBody, settings_body
from tests.walks import for_each

EMPTY = QueueSettings()
FIFO = QueueSettings(group_in_flight=1, duplicate_detection_window=300_000_000)
HIDDEN = {
    "ContentBasedDeduplication": "true",
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}
FULL = {f"k{number}": "" for number in range(50)}


def labelled(labels: dict[str, str]) -> QueueSettings:
    return replace(FIFO, labels=labels)


def test_tags_are_added_and_replaced() -> None:
    tagged = with_tags(with_tags(EMPTY, {"team": "a", "stage": "test"}), {"team": "b"})
    assert tags_of(tagged) == {"team": "b", "stage": "test"}
    assert tags_of(without_tags(tagged, ["team", "absent"])) == {"stage": "test"}


def test_attributes_are_kept_beside_tags_and_are_not_tags() -> None:
    changed = changed_settings(with_tags(FIFO, {"team": "a"}), "orders.fifo", HIDDEN)
    assert tags_of(changed) == {"team": "a"}
    assert tags_of(labelled({"sqs:other": "x"})) == {}
    for retagged in (with_tags(changed, {"team": "b"}), without_tags(changed, ["team"])):
        assert is_content_based(retagged)
        assert deduplication_scope(retagged) == "messageGroup"
        assert retagged.labels["sqs:FifoThroughputLimit"] == "perMessageGroupId"
    back = {"ContentBasedDeduplication": "false", "FifoThroughputLimit": "perQueue", "DeduplicationScope": "queue"}
    assert changed_settings(changed, "orders.fifo", back) == with_tags(FIFO, {"team": "a"})


def test_without_labels_a_queue_has_the_defaults_of_sqs() -> None:
    for settings in (EMPTY, labelled({"sqs:ContentBasedDeduplication": "x", "sqs:DeduplicationScope": "x"})):
        assert not is_content_based(settings)
        assert deduplication_scope(settings) == "queue"


@given(
    st.dictionaries(
        st.text("ab:sq", min_size=1, max_size=4).filter(lambda key: not key.startswith("sqs:")), st.just("v")
    ),
    st.lists(st.sampled_from(["a", "b", "q", "absent"])),
)
def test_no_change_of_tags_changes_another_label(tags: dict[str, str], removed: list[str]) -> None:
    changed = without_tags(with_tags(labelled({"a": "1", "sqs:DeduplicationScope": "messageGroup"}), tags), removed)
    assert tags_of(changed) == {key: text for key, text in ({"a": "1"} | tags).items() if key not in removed}
    assert deduplication_scope(changed) == "messageGroup"
    assert replace(changed, labels={}) == FIFO


@for_each(
    "tags",
    [
        {"": "v"},
        {"k" * 129: "v"},
        {"k": "v" * 1025},
        {"k\x00": "v"},
        {"k": "\n"},
        {"k": "\x7f"},
        {"k": "\uffff"},
        {"sqs:x": "v"},
    ],
    ids=lambda tags: repr(tags)[:40],
)
def test_a_tag_that_is_no_label_is_refused(tags: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        with_tags(EMPTY, {"fine": "v", **tags})


def test_a_reserved_label_cannot_be_removed_as_a_tag() -> None:
    with pytest.raises(InvalidRequest):
        without_tags(labelled({"sqs:DeduplicationScope": "messageGroup"}), ["sqs:DeduplicationScope"])


def test_fifty_labels_are_the_most() -> None:
    full = with_tags(FIFO, FULL)
    assert len(tags_of(full)) == 50
    assert with_tags(full, {"k1": "replaced"}).labels["k1"] == "replaced"
    with pytest.raises(InvalidRequest):
        with_tags(full, {"k50": ""})
    with pytest.raises(InvalidRequest):  # the label would be the 51st, which the API could not write back
        changed_settings(full, "orders.fifo", {"ContentBasedDeduplication": "true"})
    with pytest.raises(InvalidRequest):
        with_tags(labelled({"sqs:DeduplicationScope": "messageGroup"}), FULL)


def test_sixteen_kibibytes_are_the_most() -> None:
    tags = {f"{number:02}" + "k" * 123: "v" * 256 for number in range(42)}
    spare = MAX_LABELS_BYTES - len(msgspec.json.encode(tags)) - len(',"k":""')
    assert 0 < spare < 256
    assert len(msgspec.json.encode(with_tags(EMPTY, {**tags, "k": "v" * spare}).labels)) == MAX_LABELS_BYTES
    with pytest.raises(InvalidRequest):
        with_tags(EMPTY, {**tags, "k": "v" * (spare + 1)})


def test_the_longest_tag_is_a_label_that_the_api_accepts() -> None:
    tagged = with_tags(EMPTY, {"ä" * 128: "ß" * 1024, "empty": ""})
    body = msgspec.json.encode(settings_body(tagged))
    assert msgspec.json.decode(body, type=QueueSettingsBody).settings() == tagged


@for_each("attribute", list(HIDDEN))
def test_only_fifo_queues_have_attributes_of_fifo_queues(attribute: str) -> None:
    with pytest.raises(InvalidAttributeName):
        changed_settings(EMPTY, "orders", HIDDEN | {attribute: HIDDEN[attribute]})
    with pytest.raises(InvalidAttributeName):
        changed_settings(EMPTY, "orders", {attribute: HIDDEN[attribute]})


def test_a_standard_queue_has_no_deduplication_by_content() -> None:
    assert changed_settings(EMPTY, "orders", {"ContentBasedDeduplication": "false"}) == EMPTY
    with pytest.raises(InvalidAttributeName):
        changed_settings(EMPTY, "orders", {"DeduplicationScope": "queue"})


@for_each("value", ["", "True", "1", "yes", " true", "messageGroups", "perqueue"], ids=repr)
def test_other_values_are_refused(value: str) -> None:
    for attribute in HIDDEN:
        with pytest.raises(InvalidAttributeValue):
            changed_settings(FIFO, "orders.fifo", {attribute: value})


@for_each(
    ("before", "change"),
    [
        ({}, {"FifoThroughputLimit": "perMessageGroupId"}),
        ({}, {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "queue"}),
        (HIDDEN, {"DeduplicationScope": "queue"}),
    ],
)
def test_a_limit_for_each_group_needs_deduplication_in_each_group(
    before: dict[str, str], change: dict[str, str]
) -> None:
    settings = changed_settings(FIFO, "orders.fifo", before)
    with pytest.raises(InvalidAttributeValue):
        changed_settings(settings, "orders.fifo", change)


def test_limit_and_scope_change_together_in_either_order() -> None:
    limit, scope = ("FifoThroughputLimit", "perMessageGroupId"), ("DeduplicationScope", "messageGroup")
    first, second = (changed_settings(FIFO, "orders.fifo", dict(order)) for order in ([limit, scope], [scope, limit]))
    assert first == second
    assert first.labels == {"sqs:FifoThroughputLimit": "perMessageGroupId", "sqs:DeduplicationScope": "messageGroup"}
