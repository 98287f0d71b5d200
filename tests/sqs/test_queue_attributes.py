"""Queue attributes of SQS and the settings that they stand for."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.queue import Queue, QueueCounts, QueueSettings
from app.domain.refusals import InvalidRequest
from app.sqs.errors import InvalidAttributeName, InvalidAttributeValue
from app.sqs.queue_attributes import attributes_of, changed_settings, new_settings, same_attributes
from app.wire.queues import QueueSettingsBody, settings_body
from tests.walks import for_each

BOUNDS = {
    "VisibilityTimeout": ("lock_duration", 0, 43_200),
    "DelaySeconds": ("default_delay", 0, 900),
    "ReceiveMessageWaitTimeSeconds": ("default_wait", 0, 20),
    "MessageRetentionPeriod": ("default_ttl", 60, 1_209_600),
    "MaximumMessageSize": ("max_message_bytes", 1024, 1_048_576),
}
DEFAULTS = {
    "VisibilityTimeout": "30",
    "DelaySeconds": "0",
    "ReceiveMessageWaitTimeSeconds": "0",
    "MessageRetentionPeriod": "345600",
    "MaximumMessageSize": "1048576",
    "SqsManagedSseEnabled": "false",
}
FIFO_DEFAULTS = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}
COMPUTED = {
    "QueueArn", "CreatedTimestamp", "LastModifiedTimestamp", "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
}  # fmt: skip
POLICY = '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":5}'
NATIVE = QueueSettings(history=True, description="kept", labels={"team": "a"})
NO_COUNTS = QueueCounts()


def reported(settings: QueueSettings, name: str = "orders", *names: str) -> dict[str, str]:
    queue = Queue(1, name, settings, version=1, created_at=1_700_000_000_900_000, updated_at=1_700_000_100_100_000)
    return attributes_of(queue, NO_COUNTS, "us-east-1", names or ("All",))


def settable(settings: QueueSettings, name: str = "orders") -> dict[str, str]:
    return {attribute: text for attribute, text in reported(settings, name).items() if attribute not in COMPUTED}


def test_a_queue_without_attributes_has_the_defaults_of_sqs() -> None:
    settings = new_settings("orders", {}, {})
    assert settings == QueueSettings(max_delivery_count=1_000_000, default_ttl=345_600_000_000)
    assert settable(settings) == DEFAULTS


def test_a_fifo_queue_has_one_message_of_a_group_in_flight_and_detects_duplicates() -> None:
    settings = new_settings("orders.fifo", {"FifoQueue": "true"}, {})
    assert (settings.group_in_flight, settings.duplicate_detection_window) == (1, 300_000_000)
    assert settable(settings, "orders.fifo") == DEFAULTS | FIFO_DEFAULTS


@for_each(
    ("name", "attributes"),
    [("orders.fifo", {}), ("orders.fifo", {"FifoQueue": "false"}), ("orders", {"FifoQueue": "true"})],
)
def test_name_and_attribute_must_agree_on_the_kind(name: str, attributes: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        new_settings(name, attributes, {})
    assert type(refused.value) is InvalidRequest


def test_that_a_standard_queue_is_no_fifo_queue_may_be_said() -> None:
    assert new_settings("orders", {"FifoQueue": "false"}, {}) == new_settings("orders", {}, {})


def test_create_queue_refuses_malformed_names_and_tags() -> None:
    with pytest.raises(InvalidRequest):
        new_settings("a.b", {}, {})
    with pytest.raises(InvalidRequest):
        new_settings("orders", {}, {"sqs:DeduplicationScope": "messageGroup"})
    assert new_settings("orders", {}, {"team": "a"}).labels == {"team": "a"}


@for_each("attribute", BOUNDS)
def test_a_number_is_accepted_up_to_its_bounds(attribute: str) -> None:
    setting, least, most = BOUNDS[attribute]
    unit = 1 if setting == "max_message_bytes" else 1_000_000
    for number in (max(least, 1), most):
        changed = changed_settings(NATIVE, "orders", {attribute: str(number)})
        assert changed == replace(NATIVE, **{setting: number * unit})
        assert reported(changed, "orders", attribute) == {attribute: str(number)}
    for outside in (least - 1, most + 1):
        with pytest.raises(InvalidAttributeValue):
            changed_settings(NATIVE, "orders", {attribute: str(outside)})


@for_each(
    "text",
    ["", " ", "x", "6 0", " 60", "60 ", "60\n", "+60", "60.0", "6e1", "0x3c", "6_0", "٦٠", "⁶⁰", "9" * 5000],
    ids=ascii,
)
def test_what_is_no_decimal_number_is_refused(text: str) -> None:
    for attribute in BOUNDS:
        with pytest.raises(InvalidAttributeValue):
            changed_settings(NATIVE, "orders", {attribute: text})


def test_a_visibility_timeout_of_zero_counts_as_one_second() -> None:
    assert changed_settings(NATIVE, "orders", {"VisibilityTimeout": "0"}).lock_duration == 1_000_000


def test_no_delay_and_no_wait_need_no_setting() -> None:
    waiting = replace(NATIVE, default_delay=5_000_000, default_wait=5_000_000)
    assert changed_settings(waiting, "orders", {"DelaySeconds": "0", "ReceiveMessageWaitTimeSeconds": "0"}) == NATIVE


def test_one_change_sets_all_attributes_that_it_names_and_no_other() -> None:
    changed = changed_settings(NATIVE, "orders", {"DelaySeconds": "5", "RedrivePolicy": POLICY})
    expected = replace(NATIVE, default_delay=5_000_000, forward_dead_letters_to="dead", max_delivery_count=5)
    assert changed == expected
    assert changed_settings(NATIVE, "orders", {}) == NATIVE


def test_the_kind_of_a_queue_cannot_be_changed() -> None:
    fifo = new_settings("orders.fifo", {"FifoQueue": "true"}, {})
    assert changed_settings(fifo, "orders.fifo", {"FifoQueue": "true"}) == fifo
    assert changed_settings(NATIVE, "orders", {"FifoQueue": "false"}) == NATIVE
    for settings, name, value in (
        (fifo, "orders.fifo", "false"),
        (NATIVE, "orders", "true"),
        (fifo, "orders.fifo", ""),
    ):
        with pytest.raises(InvalidAttributeValue):
            changed_settings(settings, name, {"FifoQueue": value})


@for_each(
    ("attribute", "value"),
    [
        *((name, "") for name in ("Policy", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "RedriveAllowPolicy")),
        ("SqsManagedSseEnabled", ""),
        ("SqsManagedSseEnabled", "false"),
        ("RedriveAllowPolicy", '{"redrivePermission": "allowAll"}'),
    ],
)
def test_a_value_that_promises_nothing_is_accepted(attribute: str, value: str) -> None:
    assert changed_settings(NATIVE, "orders", {attribute: value}) == NATIVE


@for_each(
    ("attribute", "value", "reason"),
    [
        ("Policy", '{"Version":"2012-10-17"}', "rights of API keys"),
        ("Policy", "false", "rights of API keys"),
        ("Policy", '{"redrivePermission":"allowAll"}', "rights of API keys"),
        ("KmsMasterKeyId", "alias/aws/sqs", "KMS"),
        ("KmsDataKeyReusePeriodSeconds", "300", "KMS"),
        ("SqsManagedSseEnabled", "true", "encrypt"),
        ("SqsManagedSseEnabled", "False", "encrypt"),
        ("RedriveAllowPolicy", '{"redrivePermission":"denyAll"}', "right to send"),
        ("RedriveAllowPolicy", '{"redrivePermission":"allowAll","sourceQueueArns":[]}', "right to send"),
        ("RedriveAllowPolicy", "allowAll", "right to send"),
        ("RedriveAllowPolicy", "{}", "right to send"),
    ],
)
def test_a_promise_that_is_not_kept_is_refused_with_the_reason(attribute: str, value: str, reason: str) -> None:
    with pytest.raises(InvalidAttributeValue, match=reason):
        changed_settings(NATIVE, "orders", {attribute: value})


@for_each(
    "attribute",
    [*COMPUTED, "All", "", "visibilitytimeout", "VisibilityTimeout ", "x" * 100_000],
    ids=lambda text: text[:40],
)
def test_an_attribute_that_cannot_be_set_is_refused(attribute: str) -> None:
    with pytest.raises(InvalidAttributeName) as refused:
        changed_settings(NATIVE, "orders", {attribute: "5"})
    assert len(refused.value.detail) < 200


def test_an_attribute_that_the_server_computes_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidAttributeName, match="computes"):
        changed_settings(NATIVE, "orders", {"QueueArn": "5"})


def test_a_misspelt_attribute_is_answered_with_its_name() -> None:
    with pytest.raises(InvalidAttributeName, match="VisibilityTimeout"):
        changed_settings(NATIVE, "orders", {"VisibiltyTimeOut": "5"})
    with pytest.raises(InvalidAttributeName, match="QueueArn"):
        reported(NATIVE, "orders", "QueueARN")


def test_an_unknown_name_is_refused_beside_all() -> None:
    with pytest.raises(InvalidAttributeName):
        reported(NATIVE, "orders", "All", "Colour")


def test_counts_and_times_are_reported() -> None:
    counts = QueueCounts(available=1, blocked=2, locked=4, scheduled=8, deferred=16, dead_lettered=32, uncommitted=64)
    queue = Queue(1, "orders", NATIVE, version=3, created_at=1_700_000_000_900_000, updated_at=1_700_000_100_100_000)
    found = attributes_of(queue, counts, "eu-west-1", COMPUTED)
    assert found == {
        "QueueArn": "arn:aws:sqs:eu-west-1:000000000000:orders",
        "CreatedTimestamp": "1700000000",
        "LastModifiedTimestamp": "1700000100",
        "ApproximateNumberOfMessages": "3",
        "ApproximateNumberOfMessagesNotVisible": "4",
        "ApproximateNumberOfMessagesDelayed": "8",
    }


def test_only_what_is_asked_for_is_reported() -> None:
    settings = new_settings("orders", {}, {})
    assert reported(settings, "orders", "DelaySeconds", "QueueArn", "DelaySeconds").keys() == {
        "DelaySeconds",
        "QueueArn",
    }
    assert (
        reported(settings, "orders", "RedrivePolicy", "FifoQueue", "Policy", "KmsMasterKeyId", "RedriveAllowPolicy")
        == {}
    )
    assert attributes_of(Queue(1, "orders", settings, 1, 0, 0), NO_COUNTS, "us-east-1", ()) == {}


def test_the_policy_is_reported_if_dead_letters_go_to_another_queue() -> None:
    changed = changed_settings(NATIVE, "orders", {"RedrivePolicy": POLICY})
    assert reported(changed, "orders", "RedrivePolicy") == {"RedrivePolicy": POLICY}
    assert "RedrivePolicy" not in reported(changed_settings(changed, "orders", {"RedrivePolicy": ""}))


def test_native_settings_beyond_the_bounds_are_reported_as_they_are() -> None:
    day = 86_400_000_000
    native = QueueSettings(
        lock_duration=1_500_000, default_ttl=3650 * day, max_message_bytes=64 << 20, default_delay=7 * day, default_wait=999_999,
        forward_dead_letters_to="dead", max_delivery_count=1_000_000,
    )  # fmt: skip
    found = reported(native)
    assert found["VisibilityTimeout"] == "1"  # a lock lasts at least as long as reported
    assert found["MessageRetentionPeriod"] == "315360000"
    assert found["MaximumMessageSize"] == "67108864"
    assert found["DelaySeconds"] == "604800"
    assert found["ReceiveMessageWaitTimeSeconds"] == "0"
    assert json.loads(found["RedrivePolicy"])["maxReceiveCount"] == 1_000_000


def test_a_queue_that_keeps_messages_for_ever_reports_the_longest_retention() -> None:
    assert reported(NATIVE, "orders", "MessageRetentionPeriod") == {"MessageRetentionPeriod": "1209600"}


@for_each(
    "settings",
    [NATIVE, QueueSettings(group_in_flight=2, duplicate_detection_window=300_000_000),
     QueueSettings(group_in_flight=1), QueueSettings(group_in_flight=1, duplicate_detection_window=299_999_999)],
)  # fmt: skip
def test_the_name_alone_makes_no_fifo_queue(settings: QueueSettings) -> None:
    assert "FifoQueue" not in reported(settings, "orders.fifo")
    assert not same_attributes(settings, "orders.fifo", {"FifoQueue": "true"})


def test_the_settings_alone_make_no_fifo_queue() -> None:
    settings = QueueSettings(group_in_flight=1, duplicate_detection_window=300_000_000)
    assert "FifoQueue" in reported(settings, "orders.fifo")
    assert "FifoQueue" not in reported(settings, "orders")


def numbers(least: int, most: int) -> st.SearchStrategy[str]:
    return st.integers(least, most).map(str)


VALUES = {attribute: numbers(max(least, 1), most) for attribute, (_, least, most) in BOUNDS.items()} | {
    "ContentBasedDeduplication": st.sampled_from(["true", "false"]),
    "FifoThroughputLimit": st.sampled_from(["perQueue", "perMessageGroupId"]),
    "RedrivePolicy": numbers(1, 1000).map(
        lambda count: POLICY.replace(":dead", ":dead.fifo").replace(":5", f":{count}")
    ),
}


@given(st.fixed_dictionaries({"DeduplicationScope": st.just("messageGroup")}, optional=VALUES))
def test_what_create_queue_sets_is_reported_stored_and_equal(attributes: dict[str, str]) -> None:
    attributes["FifoQueue"] = "true"
    settings = new_settings("orders.fifo", attributes, {"team": "a"})
    assert settable(settings, "orders.fifo") == DEFAULTS | FIFO_DEFAULTS | attributes
    assert same_attributes(settings, "orders.fifo", attributes)
    assert new_settings("orders.fifo", settable(settings, "orders.fifo"), {"team": "a"}) == settings
    body = msgspec.json.encode(settings_body(settings))
    assert msgspec.json.decode(body, type=QueueSettingsBody).settings() == settings
