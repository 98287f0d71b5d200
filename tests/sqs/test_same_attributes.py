"""Whether a queue that exists has the attributes that CreateQueue gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.domain.queue import QueueSettings
from app.domain.refusals import Refusal
from app.sqs.queue_attributes import changed_settings, new_settings, same_attributes
from tests.walks import for_each

POLICY = '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":5}'
NATIVE = QueueSettings(history=True, description="kept", labels={"team": "a"})
FIFO = new_settings("orders.fifo", {"FifoQueue": "true"}, {})


@for_each(
    ("existing", "name", "given"),
    [
        (NATIVE, "orders", {}),
        (replace(NATIVE, lock_duration=1_500_000), "orders", {"VisibilityTimeout": "1"}),
        (replace(NATIVE, lock_duration=1_000_000), "orders", {"VisibilityTimeout": "0"}),
        (NATIVE, "orders", {"DelaySeconds": "0", "ReceiveMessageWaitTimeSeconds": "0", "FifoQueue": "false"}),
        (NATIVE, "orders", {"RedrivePolicy": "", "Policy": "", "MessageRetentionPeriod": "1209600"}),
        (FIFO, "orders.fifo", {"FifoQueue": "true", "DeduplicationScope": "queue"}),
        (changed_settings(NATIVE, "orders", {"RedrivePolicy": POLICY}), "orders", {
            "RedrivePolicy": POLICY.replace("us-east-1", "eu-west-1").replace(":5", ' : "5" '),
        }),
    ],
)  # fmt: skip
def test_equal_attributes_are_the_same(existing: QueueSettings, name: str, given: dict[str, str]) -> None:
    assert same_attributes(existing, name, given)


@for_each(
    ("existing", "name", "given"),
    [
        (NATIVE, "orders", {"VisibilityTimeout": "31"}),
        (NATIVE, "orders", {"DelaySeconds": "0", "MaximumMessageSize": "1024"}),
        (NATIVE, "orders", {"RedrivePolicy": POLICY}),
        (NATIVE, "orders", {"FifoQueue": "true"}),
        (replace(NATIVE, max_message_bytes=64 << 20), "orders", {"MaximumMessageSize": "1048576"}),
        (changed_settings(NATIVE, "orders", {"RedrivePolicy": POLICY}), "orders", {"RedrivePolicy": ""}),
        (changed_settings(NATIVE, "orders", {"RedrivePolicy": POLICY}), "orders", {"RedrivePolicy": POLICY.replace(":5", ":6")}),
        (FIFO, "orders.fifo", {"FifoQueue": "true", "ContentBasedDeduplication": "true"}),
        (replace(FIFO, labels={"sqs:DeduplicationScope": "messageGroup", "sqs:FifoThroughputLimit": "perMessageGroupId"}),
         "orders.fifo", {"FifoQueue": "true", "DeduplicationScope": "queue"}),
        (replace(FIFO, labels={f"k{number}": "" for number in range(50)}),
         "orders.fifo", {"FifoQueue": "true", "ContentBasedDeduplication": "true"}),
    ],
)  # fmt: skip
def test_another_value_is_not_the_same(existing: QueueSettings, name: str, given: dict[str, str]) -> None:
    assert not same_attributes(existing, name, given)


def test_malformed_attributes_are_refused_before_they_are_compared() -> None:
    for given_attributes in ({"VisibilityTimeout": "x"}, {"Colour": "red"}, {"FifoQueue": "true", "Policy": "{}"}):
        with pytest.raises(Refusal):
            same_attributes(NATIVE, "orders", given_attributes)
