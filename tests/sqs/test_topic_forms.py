"""Lists and maps of SNS are read and written within an element for their entries."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from app.domain.refusals import InvalidRequest
from app.sqs.query_protocol.answers import SNS
from app.sqs.query_protocol.form import read_form
from app.sqs.query_protocol.parameters import json_of
from app.sqs.shapes import topics
from app.sqs.shapes.members import AnswerStruct, Nothing
from tests.walks import for_each


@for_each(
    ["form", "shape", "expected"],
    [
        ("TagKeys.member.1=a&TagKeys.member.2=b", topics.UntagResource, {"TagKeys": ["a", "b"]}),
        ("TagKeys=", topics.UntagResource, {"TagKeys": []}),
        ("Tags.member.1.Key=k&Tags.member.1.Value=v", topics.TagResource, {"Tags": [{"Key": "k", "Value": "v"}]}),
        ("Attributes.entry.1.key=k&Attributes.entry.1.value=", topics.CreateTopic, {"Attributes": {"k": ""}}),
        (
            "MessageAttributes.entry.1.Name=n&MessageAttributes.entry.1.Value.DataType=String",
            topics.Publish,
            {"MessageAttributes": {"n": {"DataType": "String"}}},
        ),
        (
            "PublishBatchRequestEntries.member.1.Id=a&PublishBatchRequestEntries.member.1.Message=m",
            topics.PublishBatch,
            {"PublishBatchRequestEntries": [{"Id": "a", "Message": "m"}]},
        ),
    ],
    str,
)
def test_entries_are_read(form: str, shape: type[msgspec.Struct], expected: dict[str, Any]) -> None:
    assert msgspec.json.decode(json_of(read_form(form.encode()), shape)) == expected


@for_each(
    ["form", "shape"],
    [
        ("TagKeys.1=a", topics.UntagResource),
        ("TagKeys.entry.1=a", topics.UntagResource),
        ("TagKeys=a", topics.UntagResource),
        ("Attributes.entry.1.Name=k&Attributes.entry.1.Value=v", topics.CreateTopic),
        ("Attributes.entry.1.key=k", topics.CreateTopic),
        ("Attributes.1.key=k&Attributes.1.value=v", topics.CreateTopic),
    ],
    str,
)
def test_entries_without_their_element_are_refused(form: str, shape: type[msgspec.Struct]) -> None:
    with pytest.raises(InvalidRequest):
        json_of(read_form(form.encode()), shape)


@for_each(
    ["answer", "result"],
    [
        (topics.TopicList(), "<XResult><Topics></Topics></XResult>"),
        (
            topics.TopicList(topics=(topics.ListedTopic(topic_arn="a"),), next_token="t"),
            "<XResult><Topics><member><TopicArn>a</TopicArn></member></Topics><NextToken>t</NextToken></XResult>",
        ),
        (
            topics.AnsweredAttributes(attributes={"k": "<v>"}),
            "<XResult><Attributes><entry><key>k</key><value>&lt;v&gt;</value></entry></Attributes></XResult>",
        ),
        (topics.Changed(), "<XResult></XResult>"),
        (Nothing(), ""),
    ],
    str,
)
def test_entries_are_written(answer: AnswerStruct, result: str) -> None:
    assert SNS.xml_of("X", answer, "r").decode() == (
        f'<?xml version="1.0"?><XResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/">{result}'
        "<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></XResponse>"
    )
