"""The attribute RedrivePolicy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.queue import QueueSettings
from app.domain.refusals import InvalidRequest
from app.sqs.errors import InvalidAttributeValue
from app.sqs.redrive_policy import redrive_policy, redrive_target, with_redrive_policy
from tests.walks import for_each

ARN = "arn:aws:sqs:us-east-1:000000000000:dead"
NATIVE = QueueSettings(description="kept")


def policy(**members: Any) -> str:
    return json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": 5} | members)


@for_each("count", [1, 1000, "1", "1000"], ids=repr)
def test_the_count_is_a_number_or_its_text(count: int | str) -> None:
    changed = with_redrive_policy(NATIVE, "orders", policy(maxReceiveCount=count))
    assert (changed.forward_dead_letters_to, changed.max_delivery_count) == ("dead", int(count))
    assert changed.description == "kept"


@for_each(
    "text",
    [
        *(policy(maxReceiveCount=count) for count in (0, -1, 1001, "0", "1001", "", "five", "5.0", "٣", " 5", None, True, 5.0, [5])),
        policy(deadLetterTargetArn="dead"),
        policy(deadLetterTargetArn="arn:aws:sns:us-east-1:000000000000:dead"),
        policy(deadLetterTargetArn=5),
        policy(redrivePermission="allowAll"),
        policy(DeadLetterTargetArn=ARN),
        json.dumps({"deadLetterTargetArn": ARN}),
        json.dumps({"maxReceiveCount": 5}),
        policy() + "x", f"[{policy()}]", "{}", "null", " ", "{", ARN,
    ],
)  # fmt: skip
def test_a_malformed_policy_is_refused(text: str) -> None:
    with pytest.raises(InvalidAttributeValue):
        with_redrive_policy(NATIVE, "orders", text)
    with pytest.raises(InvalidAttributeValue):
        redrive_target({"RedrivePolicy": text})


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_other_text_is_refused_and_raises_nothing_else(text: str) -> None:
    if text:
        with pytest.raises(InvalidAttributeValue):
            redrive_target({"RedrivePolicy": text})


@given(st.dictionaries(st.sampled_from(["deadLetterTargetArn", "maxReceiveCount", "x"]), st.integers() | st.just(ARN)))
def test_a_policy_is_accepted_if_its_two_members_are_valid(members: dict[str, Any]) -> None:
    count = members.get("maxReceiveCount")
    valid = (
        members == {"deadLetterTargetArn": ARN, "maxReceiveCount": count} and type(count) is int and 1 <= count <= 1000
    )
    try:
        target = redrive_target({"RedrivePolicy": json.dumps(members)})
    except InvalidAttributeValue:
        assert not valid
    else:
        assert valid
        assert target == "dead"


@given(
    count=st.integers(1, 1000), target=st.from_regex("[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?", fullmatch=True)
)
def test_a_reported_policy_is_accepted_again(count: int, target: str) -> None:
    name = "orders.fifo" if target.endswith(".fifo") else "orders"
    settings = QueueSettings(forward_dead_letters_to=target, max_delivery_count=count)
    text = redrive_policy(settings, "eu-west-1")
    assert text is not None
    assert json.loads(text) == {
        "deadLetterTargetArn": f"arn:aws:sqs:eu-west-1:000000000000:{target}",
        "maxReceiveCount": count,
    }
    assert with_redrive_policy(QueueSettings(), name, text) == settings


def test_an_empty_policy_removes_target_and_limit() -> None:
    removed = with_redrive_policy(QueueSettings(forward_dead_letters_to="dead", max_delivery_count=5), "orders", "")
    assert (removed.forward_dead_letters_to, removed.max_delivery_count) == (None, 1_000_000)
    assert redrive_policy(removed, "us-east-1") is None


def test_the_target_is_known_before_it_is_set() -> None:
    assert redrive_target({"RedrivePolicy": policy(), "DelaySeconds": "5"}) == "dead"
    assert redrive_target({"RedrivePolicy": ""}) is None
    assert redrive_target({"DelaySeconds": "5"}) is None


@for_each(("name", "target"), [("orders", "dead.fifo"), ("orders.fifo", "dead")])
def test_a_target_of_another_kind_is_refused(name: str, target: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        with_redrive_policy(NATIVE, name, policy(deadLetterTargetArn=f"arn:aws:sqs:r:0:{target}"))
    assert not isinstance(refused.value, InvalidAttributeValue)  # SQS says InvalidParameterValue here


def test_a_target_of_the_same_kind_is_accepted() -> None:
    text = policy(deadLetterTargetArn="arn:aws:sqs:r:0:dead.fifo")
    assert with_redrive_policy(NATIVE, "orders.fifo", text).forward_dead_letters_to == "dead.fifo"
