"""A policy that lets topics send to a queue is accepted, as MassTransit and the SDKs set it. Every other one is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.sqs.errors import InvalidAttributeValue
from app.sqs.unsupported_attributes import check_unsupported
from tests.walks import for_each

QUEUE = "arn:aws:sqs:eu-west-1:000000000000:billing"
TOPIC = "arn:aws:sns:eu-west-1:000000000000:orders"
SERVICE = {"Service": "sns.amazonaws.com"}


def policy(**members: Any) -> str:
    statement = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": QUEUE, "Principal": SERVICE, **members}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


MASS_TRANSIT = {
    "Sid": "1",
    "Action": ["sqs:SendMessage"],
    "Resource": [QUEUE],
    "Condition": {"ArnLike": {"aws:SourceArn": [TOPIC, "arn:aws:sns:eu-west-1:000000000000:*"]}},
}
SOURCE = {"ArnEquals": {"aws:SourceArn": TOPIC}}


@for_each(
    "value",
    [
        policy(),
        policy(**MASS_TRANSIT),
        policy(Principal="*", Condition=SOURCE),
        policy(Principal={"AWS": "*"}, Condition=SOURCE),
        json.dumps({"Statement": json.loads(policy())["Statement"][0]}),
    ],
    str,
)
def test_a_policy_that_lets_topics_send_is_accepted(value: str) -> None:
    check_unsupported("Policy", value)


@for_each(
    "value",
    [
        "{}",
        "Allow",
        policy(Effect="Deny"),
        policy(Action="sqs:*"),
        policy(Action="sqs:ReceiveMessage"),
        policy(Action=["sqs:SendMessage", "sqs:ReceiveMessage"]),
        policy(Principal="*"),
        policy(Principal={"AWS": "*"}),
        policy(Principal={"Service": "s3.amazonaws.com"}),
        policy(Condition={"ArnEquals": {"aws:SourceArn": "arn:aws:s3:::bucket"}}),
        policy(Principal="*", Condition={"ArnEquals": {"aws:SourceArn": [TOPIC, "*"]}}),
        policy(Condition={"Bool": {"aws:SecureTransport": "true"}}),
        policy(Condition={"ArnEquals": {"aws:PrincipalArn": TOPIC}}),
        policy(Principal="*", Condition={"ArnNotEquals": {"aws:SourceArn": TOPIC}}),
        policy(NotAction="sqs:SendMessage"),
    ],
    str,
)
def test_any_other_policy_is_refused(value: str) -> None:
    with pytest.raises(InvalidAttributeValue, match="API keys"):
        check_unsupported("Policy", value)
