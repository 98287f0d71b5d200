"""The names and values of a form are translated strictly: what is not understood is refused with a sentence that names it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from app.domain.refusals import InvalidRequest
from app.sqs.errors import MissingParameter
from app.sqs.query_protocol.form import read_form
from app.sqs.query_protocol.parameters import json_of
from app.sqs.shapes import messages, queues
from app.sqs.shapes.members import OfQueue, RequestStruct
from tests.walks import for_each

Json = dict[str, Any]


def translated(form: str, shape: type[msgspec.Struct]) -> Json:
    return msgspec.json.decode(json_of(read_form(form.encode()), shape))


def refusal(form: str, shape: type[msgspec.Struct]) -> str:
    with pytest.raises(InvalidRequest) as refused:
        translated(form, shape)
    return refused.value.detail


# ---- entries ---------------------------------------------------------------------------------------------------------


@for_each(
    ["form", "shape", "expected"],
    [
        ("AttributeName=All", queues.GetQueueAttributes, {"AttributeNames": ["All"]}),
        ("AttributeName=", queues.GetQueueAttributes, {"AttributeNames": []}),
        ("AttributeNames=", queues.GetQueueAttributes, {"AttributeNames": []}),
        ("Entries=", messages.SendMessageBatch, {"Entries": []}),
        ("TagKey=k", queues.UntagQueue, {"TagKeys": ["k"]}),
        ("Attribute.Name=Policy&Attribute.Value=", queues.SetQueueAttributes, {"Attributes": {"Policy": ""}}),
        ("Tag.Value=v&Tag.Key=k", queues.TagQueue, {"Tags": {"k": "v"}}),
        ("AttributeName.10=j&AttributeName.9=i", queues.GetQueueAttributes, {"AttributeNames": ["i", "j"]}),
        ("AttributeName.7=a&AttributeName.1000=b", queues.GetQueueAttributes, {"AttributeNames": ["a", "b"]}),
        ("AttributeName.1=", queues.GetQueueAttributes, {"AttributeNames": [""]}),
        ("MessageBody=&QueueUrl=x%00y", messages.SendMessage, {"MessageBody": "", "QueueUrl": "x\0y"}),
    ],
    str,
)
def test_entries_are_read_as_clients_send_them(form: str, shape: type[msgspec.Struct], expected: Json) -> None:
    assert translated(form, shape) == expected


NUMBERS = ("0", "00", "01", "1001", "9" * 5000)


@for_each("number", NUMBERS, repr)
def test_an_entry_has_a_number_from_1_to_1000(number: str) -> None:
    assert "from 1 to 1000" in refusal(f"AttributeName.{number}=a", queues.GetQueueAttributes)
    assert "from 1 to 1000" in refusal(f"Attribute.1.Name=a&Attribute.{number}.Name=a", queues.CreateQueue)
    assert len(refusal(f"SendMessageBatchRequestEntry.{number}.Id=a", messages.SendMessageBatch)) < 500


@for_each(
    ["form", "shape", "name"],
    [
        ("AttributeName.-1=a", queues.GetQueueAttributes, "AttributeName.-1"),
        ("AttributeName.%2B1=a", queues.GetQueueAttributes, "AttributeName.+1"),
        ("AttributeName.%D9%A1=a", queues.GetQueueAttributes, "AttributeName.١"),
        ("AttributeName.member.1=a", queues.GetQueueAttributes, "AttributeName.member.1"),
        ("AttributeName.1.1=a", queues.GetQueueAttributes, "AttributeName.1.1"),
        ("AttributeName.=a", queues.GetQueueAttributes, "AttributeName."),
        ("AttributeName.1.=a", queues.GetQueueAttributes, "AttributeName.1."),
        ("AttributeName.1=a&AttributeName.x=b", queues.GetQueueAttributes, "AttributeName.x"),
        ("QueueUrl.1=a", queues.GetQueueAttributes, "QueueUrl.1"),
        ("Queue=a", queues.GetQueueAttributes, "Queue"),
        ("=a", queues.GetQueueAttributes, ""),
        (".=a", queues.GetQueueAttributes, ""),
        ("x" * 100_000 + "=a", queues.GetQueueAttributes, "xxx"),
        ("queueurl=a", queues.GetQueueAttributes, "queueurl"),
        ("Attribute.1.Key=a&Attribute.1.Value=b", queues.SetQueueAttributes, "Attribute.1.Key"),
        ("SendMessageBatchRequestEntry.1.Body=a", messages.SendMessageBatch, "SendMessageBatchRequestEntry.1.Body"),
        (
            "MessageAttribute.1.Name=a&MessageAttribute.1.Value.DataTypes=b",
            messages.SendMessage,
            "MessageAttribute.1.Value.DataTypes",
        ),
        (".".join(["MessageAttribute.1.Value"] * 1000) + "=a&MessageAttribute.1.Name=a", messages.SendMessage, "Mess"),
    ],
    str,
)
def test_a_name_that_the_action_does_not_have_is_refused(form: str, shape: type[msgspec.Struct], name: str) -> None:
    sentence = refusal(form, shape)
    assert sentence.startswith(f"The action has no parameter `{name}")
    assert len(sentence) < 500


@for_each(
    ["form", "shape", "sentence"],
    [
        ("MessageBdy=a", messages.SendMessage, "Did you mean `MessageBody`?"),
        (
            "SendMessageBatchRequestEntry.2.MesageBody=a",
            messages.SendMessageBatch,
            "Did you mean `SendMessageBatchRequestEntry.2.MessageBody`?",
        ),
        ("Attribute.1.name=a", queues.CreateQueue, "Did you mean `Attribute.1.Name`?"),
        ("Entries.1.Id=a", messages.SendMessageBatch, "are named `SendMessageBatchRequestEntry.1`"),
        ("AttributeNames=All", queues.GetQueueAttributes, "are named `AttributeName.1`"),
        ("AttributeNames=&AttributeName.1=All", queues.GetQueueAttributes, "is also given under another name"),
        ("AttributeName=a&AttributeName.1=b", queues.GetQueueAttributes, "`AttributeName` has no value of its own"),
        ("SendMessageBatchRequestEntry=a", messages.SendMessageBatch, "has no value of its own"),
        ("SendMessageBatchRequestEntry.1=a", messages.SendMessageBatch, "has no value of its own"),
        ("Attribute=a", queues.CreateQueue, "`Attribute` has no value of its own"),
        (
            "Attribute.1.Name=a&Attribute.1.Value=1&Attribute.2.Name=a&Attribute.2.Value=1",
            queues.CreateQueue,
            "`a` is given more than once in `Attribute`",
        ),
    ],
    str,
)
def test_a_refusal_says_what_to_write(form: str, shape: type[msgspec.Struct], sentence: str) -> None:
    assert sentence in refusal(form, shape)


@for_each(
    ["form", "name"],
    [
        ("Attribute.1.Value=a", "Attribute.1.Name"),
        ("Attribute.1.Name=a", "Attribute.1.Value"),
        ("Tag.1.Key=a", "Tag.1.Value"),
        ("Tag.Value=a", "Tag.Key"),
    ],
)
def test_an_entry_of_a_map_has_a_key_and_a_value(form: str, name: str) -> None:
    with pytest.raises(MissingParameter, match=f"`{name}` is missing"):
        translated(form, queues.CreateQueue)


# ---- values ----------------------------------------------------------------------------------------------------------


@for_each(["text", "value"], [("10", 10), ("-1", -1), ("0", 0), ("007", 7), ("9" * 19, int("9" * 19))])
def test_a_decimal_integer_becomes_a_number(text: str, value: int) -> None:
    assert translated(f"MaxNumberOfMessages={text}", messages.ReceiveMessage) == {"MaxNumberOfMessages": value}


@for_each(
    "text", ["", "ten", "1.0", "1e1", "+1", "%201", "1_0", "%D9%A1", "0x1", "true", "9" * 5000], lambda text: text[:9]
)
def test_another_text_is_left_for_the_decoder_to_refuse(text: str) -> None:
    raw = json_of(read_form(f"MaxNumberOfMessages={text}".encode()), messages.ReceiveMessage)
    with pytest.raises(msgspec.ValidationError, match=r"`\$\.MaxNumberOfMessages`"):
        msgspec.json.decode(raw, type=messages.ReceiveMessage)


def test_a_boolean_is_true_or_false() -> None:
    class Switch(RequestStruct, kw_only=True):
        on: bool

    assert translated("On=true", Switch) == {"On": True}
    assert translated("On=false", Switch) == {"On": False}
    assert translated("On=1", Switch) == {"On": "1"}


def test_a_struct_within_a_struct_is_read_by_parts() -> None:
    class Outer(OfQueue, kw_only=True):
        value: messages.AttributeValue

    assert translated("Value.DataType=String&Value.StringValue=a", Outer) == {
        "Value": {"DataType": "String", "StringValue": "a"}
    }
