"""Every request of SQS is read from a form of the query protocol as from the JSON of the JSON protocol."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sqs.query_protocol.form import read_form
from app.sqs.query_protocol.members import members
from app.sqs.query_protocol.parameters import json_of
from app.sqs.shapes import messages, move_tasks, queues, topics
from app.sqs.shapes.members import RequestStruct
from tests.walks import for_each

Json = dict[str, Any]
URL = "https://q.example/000000000000/orders"
AT = "QueueUrl=https%3A%2F%2Fq.example%2F000000000000%2Forders"

REQUESTS: dict[str, tuple[type[msgspec.Struct], str, Json]] = {
    "AddPermission": (
        queues.AddPermission,
        f"{AT}&Label=l&AWSAccountId.1=177715257436&AWSAccountId.2=111111111111&ActionName.1=SendMessage&ActionName.2=%2A",
        {"Label": "l", "AWSAccountIds": ["177715257436", "111111111111"], "Actions": ["SendMessage", "*"]},
    ),
    "CancelMessageMoveTask": (move_tasks.CancelMessageMoveTask, "TaskHandle=a%2Bb%3D", {"TaskHandle": "a+b="}),
    "ChangeMessageVisibility": (
        messages.ChangeMessageVisibility,
        f"{AT}&ReceiptHandle=1.a&VisibilityTimeout=60",
        {"ReceiptHandle": "1.a", "VisibilityTimeout": 60},
    ),
    "ChangeMessageVisibilityBatch": (
        messages.ChangeMessageVisibilityBatch,
        f"{AT}&ChangeMessageVisibilityBatchRequestEntry.1.Id=a&ChangeMessageVisibilityBatchRequestEntry.1.ReceiptHandle=1.a"
        "&ChangeMessageVisibilityBatchRequestEntry.1.VisibilityTimeout=45&ChangeMessageVisibilityBatchRequestEntry.2.Id=b",
        {"Entries": [{"Id": "a", "ReceiptHandle": "1.a", "VisibilityTimeout": 45}, {"Id": "b"}]},
    ),
    "CreateQueue": (
        queues.CreateQueue,
        "QueueName=orders&Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=40&Attribute.2.Name=RedrivePolicy"
        "&Attribute.2.Value=%7B%22a%22%3A1%7D&Tag.1.Key=team&Tag.1.Value=&Tag.2.Key=b&Tag.2.Value=x+y",
        {
            "QueueName": "orders",
            "Attributes": {"VisibilityTimeout": "40", "RedrivePolicy": '{"a":1}'},
            "tags": {"team": "", "b": "x y"},
        },
    ),
    "DeleteMessage": (messages.DeleteMessage, f"{AT}&ReceiptHandle=1.a", {"ReceiptHandle": "1.a"}),
    "DeleteMessageBatch": (
        messages.DeleteMessageBatch,
        f"{AT}&DeleteMessageBatchRequestEntry.1.Id=a&DeleteMessageBatchRequestEntry.1.ReceiptHandle=1.a",
        {"Entries": [{"Id": "a", "ReceiptHandle": "1.a"}]},
    ),
    "DeleteQueue": (queues.DeleteQueue, AT, {}),
    "GetQueueAttributes": (
        queues.GetQueueAttributes,
        f"{AT}&AttributeName.1=VisibilityTimeout&AttributeName.2=DelaySeconds",
        {"AttributeNames": ["VisibilityTimeout", "DelaySeconds"]},
    ),
    "GetQueueUrl": (
        queues.GetQueueUrl,
        "QueueName=orders&QueueOwnerAWSAccountId=123456789012",
        {"QueueName": "orders", "QueueOwnerAWSAccountId": "123456789012"},
    ),
    "ListDeadLetterSourceQueues": (
        queues.ListDeadLetterSourceQueues,
        f"{AT}&MaxResults=2&NextToken=t",
        {"MaxResults": 2, "NextToken": "t"},
    ),
    "ListMessageMoveTasks": (
        move_tasks.ListMessageMoveTasks,
        "SourceArn=arn%3Aaws%3Asqs%3A%3A0%3Ad&MaxResults=5",
        {"SourceArn": "arn:aws:sqs::0:d", "MaxResults": 5},
    ),
    "ListQueueTags": (queues.ListQueueTags, AT, {}),
    "ListQueues": (
        queues.ListQueues,
        "QueueNamePrefix=&MaxResults=1000&NextToken=t",
        {"QueueNamePrefix": "", "MaxResults": 1000, "NextToken": "t"},
    ),
    "PurgeQueue": (queues.PurgeQueue, AT, {}),
    "ReceiveMessage": (
        messages.ReceiveMessage,
        f"{AT}&AttributeName.1=All&MessageSystemAttributeName.1=SentTimestamp&MessageAttributeName.1=a.%2A"
        "&MessageAttributeName.2=b&MaxNumberOfMessages=10&VisibilityTimeout=0&WaitTimeSeconds=20&ReceiveRequestAttemptId=x",
        {
            "AttributeNames": ["All"],
            "MessageSystemAttributeNames": ["SentTimestamp"],
            "MessageAttributeNames": ["a.*", "b"],
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": 0,
            "WaitTimeSeconds": 20,
            "ReceiveRequestAttemptId": "x",
        },
    ),
    "RemovePermission": (queues.RemovePermission, f"{AT}&Label=l", {"Label": "l"}),
    "SendMessage": (
        messages.SendMessage,
        f"{AT}&MessageBody=This+is+a+test&DelaySeconds=45&MessageAttribute.1.Name=n&MessageAttribute.1.Value.StringValue=1.10"
        "&MessageAttribute.1.Value.DataType=Number&MessageAttribute.2.Name=b&MessageAttribute.2.Value.BinaryValue=AP8%3D"
        "&MessageAttribute.2.Value.DataType=Binary&MessageSystemAttribute.1.Name=AWSTraceHeader"
        "&MessageSystemAttribute.1.Value.StringValue=Root%3D1&MessageSystemAttribute.1.Value.DataType=String"
        "&MessageGroupId=g&MessageDeduplicationId=d",
        {
            "MessageBody": "This is a test",
            "DelaySeconds": 45,
            "MessageAttributes": {
                "n": {"StringValue": "1.10", "DataType": "Number"},
                "b": {"BinaryValue": "AP8=", "DataType": "Binary"},
            },
            "MessageSystemAttributes": {"AWSTraceHeader": {"StringValue": "Root=1", "DataType": "String"}},
            "MessageGroupId": "g",
            "MessageDeduplicationId": "d",
        },
    ),
    "SendMessageBatch": (
        messages.SendMessageBatch,
        f"{AT}&SendMessageBatchRequestEntry.1.Id=a&SendMessageBatchRequestEntry.1.MessageBody=one"
        "&SendMessageBatchRequestEntry.2.Id=b&SendMessageBatchRequestEntry.2.MessageBody=two"
        "&SendMessageBatchRequestEntry.2.DelaySeconds=60&SendMessageBatchRequestEntry.2.MessageAttribute.1.Name=n"
        "&SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.StringValue=x"
        "&SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.DataType=String",
        {
            "Entries": [
                {"Id": "a", "MessageBody": "one"},
                {
                    "Id": "b",
                    "MessageBody": "two",
                    "DelaySeconds": 60,
                    "MessageAttributes": {"n": {"StringValue": "x", "DataType": "String"}},
                },
            ]
        },
    ),
    "SetQueueAttributes": (
        queues.SetQueueAttributes,
        f"{AT}&Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=35",
        {"Attributes": {"VisibilityTimeout": "35"}},
    ),
    "StartMessageMoveTask": (
        move_tasks.StartMessageMoveTask,
        "SourceArn=s&DestinationArn=d&MaxNumberOfMessagesPerSecond=50",
        {"SourceArn": "s", "DestinationArn": "d", "MaxNumberOfMessagesPerSecond": 50},
    ),
    "TagQueue": (queues.TagQueue, f"{AT}&Tag.1.Key=k&Tag.1.Value=v", {"Tags": {"k": "v"}}),
    "UntagQueue": (queues.UntagQueue, f"{AT}&TagKey.1=k&TagKey.2=l", {"TagKeys": ["k", "l"]}),
}
"""By action: its struct, a form as SDKs and the API reference have it, and the members it has in JSON, apart from the URL."""

PARTS = {"OfQueue", "SentMembers", "AttributeValue", "SendEntry", "DeleteEntry", "ChangeVisibilityEntry"}
"""Structs that are parts of requests."""


def requests(shape: type[msgspec.Struct] = RequestStruct) -> Iterator[type[msgspec.Struct]]:
    """This struct and all of SQS that extend it, apart from those of tests."""
    if shape.__module__.startswith("app.") and shape.__module__ != topics.__name__:
        yield shape
    for narrower in shape.__subclasses__():
        yield from requests(narrower)


def test_the_table_has_the_request_of_every_action() -> None:
    assert set(REQUESTS) == {shape.__name__ for shape in requests()} - PARTS - {"RequestStruct"}
    assert {shape.__name__ for shape, _, _ in REQUESTS.values()} == set(REQUESTS)


@for_each(["action"], [(action,) for action in REQUESTS], str)
def test_a_form_is_the_same_request_as_its_json(action: str) -> None:
    shape, form, given = REQUESTS[action]
    expected = {"QueueUrl": URL} | given if AT in form else given
    raw = json_of(read_form(f"Action={action}&Version=2012-11-05&{form}".encode()), shape)
    assert json.loads(raw) == expected
    msgspec.json.decode(raw, type=shape)


def test_no_struct_has_a_name_twice() -> None:
    for shape in requests():
        names = [name for member in members(shape) for name in {member.json_name, member.query_name}]
        assert len(names) == len(set(names)), shape


# ---- any request -----------------------------------------------------------------------------------------------------

LISTS = {
    "Entries": "SendMessageBatchRequestEntry",
    "AttributeNames": "AttributeName",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "MessageAttributeNames": "MessageAttributeName",
}
MAPS = {
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "MessageSystemAttributes": ("MessageSystemAttribute", "Name"),
    "tags": ("Tag", "Key"),
}


def fields(request: Json, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The fields of a request, by the rules of the query protocol: flattened lists and maps, numbered from 1."""
    for name, value in request.items():
        if name in LISTS:
            for number, entry in enumerate(value, 1):
                yield from flat(f"{prefix}{LISTS[name]}.{number}", entry)
        elif name in MAPS:
            repeated, key = MAPS[name]
            for number, (found, entry) in enumerate(value.items(), 1):
                yield f"{prefix}{repeated}.{number}.{key}", found
                yield from flat(f"{prefix}{repeated}.{number}.Value", entry)
        else:
            yield f"{prefix}{name}", str(value)


def flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        yield from fields(value, f"{name}.")
    else:
        yield name, value


TEXT = st.text(max_size=20)
VALUES = st.fixed_dictionaries({"DataType": TEXT}, optional={"StringValue": TEXT, "BinaryValue": TEXT})
SENT = {
    "DelaySeconds": st.integers(0, 604_800),
    "MessageAttributes": st.dictionaries(TEXT, VALUES, min_size=1, max_size=10),
    "MessageSystemAttributes": st.fixed_dictionaries({"AWSTraceHeader": VALUES}),
    "MessageGroupId": st.from_regex("[!-~]{1,9}", fullmatch=True),
}
NAMES = st.lists(TEXT, min_size=1, max_size=12)
ANY_REQUEST: dict[str, tuple[type[msgspec.Struct], st.SearchStrategy[Json]]] = {
    "SendMessage": (messages.SendMessage, st.fixed_dictionaries({"MessageBody": TEXT}, optional=SENT)),
    "SendMessageBatch": (
        messages.SendMessageBatch,
        st.fixed_dictionaries(
            {
                "Entries": st.lists(
                    st.fixed_dictionaries({"Id": TEXT, "MessageBody": TEXT}, optional=SENT), min_size=1, max_size=12
                )
            }
        ),
    ),
    "ReceiveMessage": (
        messages.ReceiveMessage,
        st.fixed_dictionaries(
            {},
            optional={
                "AttributeNames": NAMES,
                "MessageSystemAttributeNames": NAMES,
                "MessageAttributeNames": NAMES,
                "VisibilityTimeout": st.integers(0, 43_200),
            },
        ),
    ),
    "CreateQueue": (
        queues.CreateQueue,
        st.fixed_dictionaries(
            {"QueueName": TEXT},
            optional={name: st.dictionaries(TEXT, TEXT, min_size=1, max_size=12) for name in ("Attributes", "tags")},
        ),
    ),
}


@pytest.mark.parametrize("action", ANY_REQUEST)
@given(data=st.data(), seed=st.integers(0, 99))
def test_any_request_is_read_as_it_was_meant(action: str, data: st.DataObject, seed: int) -> None:
    shape, strategy = ANY_REQUEST[action]
    request = data.draw(strategy)
    sent = list(fields(request))
    random.Random(seed).shuffle(sent)  # numbers give the order, and nothing else does
    raw = json_of(read_form(urlencode(sent).encode()), shape)
    assert json.loads(raw) == request
    msgspec.json.decode(raw, type=shape)
