"""Answers and errors of the query protocol are well-formed XML, as older SDKs parse it."""

from __future__ import annotations

import tracemalloc
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sqs.errors import AwsError
from app.sqs.query_protocol.answers import SQS, QueryService
from app.sqs.shapes import messages, move_tasks, queues
from app.sqs.shapes.members import AnswerStruct, FailedEntry, Nothing
from tests.walks import for_each

AWS = "{http://queue.amazonaws.com/doc/2012-11-05/}"
URL = "https://q.example/000000000000/a&b"
VALUE = messages.AnsweredValue
SENT = messages.SentMessage(message_id="i", md5_of_message_body="m", md5_of_message_attributes="n", sequence_number="1")
SENT_XML = (
    "<MessageId>i</MessageId><MD5OfMessageBody>m</MD5OfMessageBody>"
    "<MD5OfMessageAttributes>n</MD5OfMessageAttributes><SequenceNumber>1</SequenceNumber>"
)
FAILED = (FailedEntry(id="b", code="X", sender_fault=True, message="no"),)
FAILED_XML = (
    "<BatchResultErrorEntry><Id>b</Id><Code>X</Code><SenderFault>true</SenderFault><Message>no</Message>"
    "</BatchResultErrorEntry>"
)
DONE = (messages.DoneEntry(id="a"),)
RECEIVED = messages.ReceivedMessage(
    message_id="i",
    receipt_handle="1.a",
    md5_of_body="m",
    body="<b>",
    attributes={"SentTimestamp": "1", "SenderId": "s"},
    md5_of_message_attributes="n",
    message_attributes={
        "t": VALUE(data_type="String", string_value=""),
        "b": VALUE(data_type="Binary", binary_value="AP8="),
    },
)
RECEIVED_XML = (
    "<Message><MessageId>i</MessageId><ReceiptHandle>1.a</ReceiptHandle><MD5OfBody>m</MD5OfBody><Body>&lt;b&gt;</Body>"
    "<Attribute><Name>SentTimestamp</Name><Value>1</Value></Attribute>"
    "<Attribute><Name>SenderId</Name><Value>s</Value></Attribute><MD5OfMessageAttributes>n</MD5OfMessageAttributes>"
    "<MessageAttribute><Name>t</Name><Value><DataType>String</DataType><StringValue></StringValue></Value>"
    "</MessageAttribute><MessageAttribute><Name>b</Name><Value><DataType>Binary</DataType>"
    "<BinaryValue>AP8=</BinaryValue></Value></MessageAttribute></Message>"
)
BARE = messages.ReceivedMessage(message_id="j", receipt_handle="2.a", md5_of_body="m", body="")

ANSWERS: list[tuple[str, AnswerStruct, str]] = [
    ("CreateQueue", queues.FoundQueue(queue_url=URL), "<QueueUrl>https://q.example/000000000000/a&amp;b</QueueUrl>"),
    (
        "ListQueues",
        queues.QueueList(queue_urls=("u", "v"), next_token="t"),
        "<QueueUrl>u</QueueUrl><QueueUrl>v</QueueUrl><NextToken>t</NextToken>",
    ),
    ("ListQueues", queues.QueueList(), ""),
    (
        "GetQueueAttributes",
        queues.QueueAttributes(attributes={"DelaySeconds": "0", "RedrivePolicy": '{"a":1}'}),
        "<Attribute><Name>DelaySeconds</Name><Value>0</Value></Attribute>"
        '<Attribute><Name>RedrivePolicy</Name><Value>{"a":1}</Value></Attribute>',
    ),
    ("ListDeadLetterSourceQueues", queues.SourceQueueList(queue_urls=("u",)), "<QueueUrl>u</QueueUrl>"),
    ("ListQueueTags", queues.QueueTags(tags={"k": "v"}), "<Tag><Key>k</Key><Value>v</Value></Tag>"),
    ("SendMessage", SENT, SENT_XML),
    (
        "SendMessageBatch",
        messages.SentBatch(
            successful=(messages.SentEntry(id="a", message_id="i", md5_of_message_body="m"),), failed=FAILED
        ),
        "<SendMessageBatchResultEntry><MessageId>i</MessageId><MD5OfMessageBody>m</MD5OfMessageBody><Id>a</Id>"
        f"</SendMessageBatchResultEntry>{FAILED_XML}",
    ),
    ("ReceiveMessage", messages.ReceivedMessages(), ""),
    (
        "ReceiveMessage",
        messages.ReceivedMessages(messages=(RECEIVED, BARE)),
        RECEIVED_XML + "<Message><MessageId>j</MessageId><ReceiptHandle>2.a</ReceiptHandle><MD5OfBody>m</MD5OfBody>"
        "<Body></Body></Message>",
    ),
    (
        "DeleteMessageBatch",
        messages.DeletedBatch(successful=DONE, failed=()),
        "<DeleteMessageBatchResultEntry><Id>a</Id></DeleteMessageBatchResultEntry>",
    ),
    (
        "ChangeMessageVisibilityBatch",
        messages.ChangedBatch(successful=DONE, failed=FAILED),
        "<ChangeMessageVisibilityBatchResultEntry><Id>a</Id></ChangeMessageVisibilityBatchResultEntry>" + FAILED_XML,
    ),
    ("StartMessageMoveTask", move_tasks.StartedTask(task_handle="t"), "<TaskHandle>t</TaskHandle>"),
    (
        "CancelMessageMoveTask",
        move_tasks.CancelledTask(approximate_number_of_messages_moved=0),
        "<ApproximateNumberOfMessagesMoved>0</ApproximateNumberOfMessagesMoved>",
    ),
    (
        "ListMessageMoveTasks",
        move_tasks.TaskList(
            results=(
                move_tasks.ListedTask(
                    status="RUNNING", source_arn="s", approximate_number_of_messages_moved=3, started_timestamp=17
                ),
            )
        ),
        "<ListMessageMoveTasksResultEntry><Status>RUNNING</Status><SourceArn>s</SourceArn>"
        "<ApproximateNumberOfMessagesMoved>3</ApproximateNumberOfMessagesMoved><StartedTimestamp>17</StartedTimestamp>"
        "</ListMessageMoveTasksResultEntry>",
    ),
]
PARTS = {"Nothing", "FailedEntry", "AnsweredValue", "SentEntry", "ReceivedMessage", "DoneEntry", "ListedTask"}


def parsed(raw: bytes) -> ElementTree.Element:
    return ElementTree.fromstring(raw)


def received_body(raw: bytes) -> str:
    return parsed(raw).findtext(f".//{AWS}Body", "absent")


@for_each(["action", "answer", "members"], ANSWERS, lambda case: case[0])
def test_an_answer_has_a_result_with_its_members(action: str, answer: AnswerStruct, members: str) -> None:
    raw = SQS.xml_of(action, answer, "r-1")
    assert raw.decode() == (
        f'<?xml version="1.0"?><{action}Response xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        f"<{action}Result>{members}</{action}Result>"
        f"<ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata></{action}Response>"
    )
    assert parsed(raw).findtext(f"{AWS}ResponseMetadata/{AWS}RequestId") == "r-1"


def test_the_table_has_every_answer() -> None:
    shapes = [shape for module in (messages, queues, move_tasks) for shape in vars(module).values()]
    answers = {shape.__name__ for shape in shapes if isinstance(shape, type) and issubclass(shape, AnswerStruct)}
    assert answers - PARTS - {"AnswerStruct"} == {type(answer).__name__ for _, answer, _ in ANSWERS}


@for_each("answer", [None, Nothing()], repr)
def test_an_answer_without_members_has_no_result(answer: AnswerStruct | None) -> None:
    assert SQS.xml_of("DeleteMessage", answer, "r").decode() == (
        '<?xml version="1.0"?><DeleteMessageResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        "<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></DeleteMessageResponse>"
    )


@for_each(["status", "kind"], [(400, "Sender"), (403, "Sender"), (500, "Receiver"), (503, "Receiver")])
def test_an_error_has_a_type_a_code_and_a_message(status: int, kind: str) -> None:
    raw = SQS.xml_error(AwsError("JsonName", "Query.Code", status), "No queue <a&b>\0.", "r")
    assert raw.decode() == (
        '<?xml version="1.0"?><ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error>'
        f"<Type>{kind}</Type><Code>Query.Code</Code><Message>No queue &lt;a&amp;b&gt;\ufffd.</Message><Detail/></Error>"
        "<RequestId>r</RequestId></ErrorResponse>"
    )
    assert parsed(raw).findtext(f"{AWS}Error/{AWS}Code") == "Query.Code"


def test_another_service_has_a_namespace_of_its_own() -> None:
    other = QueryService("2010-03-31", "http://sns.amazonaws.com/doc/2010-03-31/")
    for raw in (other.xml_of("Publish", SENT, "r"), other.xml_error(AwsError("a", "b"), "m", "r")):
        assert parsed(raw).tag.startswith("{http://sns.amazonaws.com/doc/2010-03-31/}")


# ---- texts -----------------------------------------------------------------------------------------------------------


def with_body(body: str) -> bytes:
    message = messages.ReceivedMessage(message_id="i", receipt_handle="h", md5_of_body="m", body=body)
    return SQS.xml_of("ReceiveMessage", messages.ReceivedMessages(messages=(message,)), "r")


@for_each(
    "body",
    ["\r\n\r \t\n", " a ", "]]>", "&amp;#13;", "<!--\"'-->", "\x7f\x85\u2028\ufeff\ufffd\U0010ffff", "é😀"],
    repr,
)
def test_text_comes_back_as_it_was(body: str) -> None:
    assert received_body(with_body(body)) == body


@for_each("character", ["\0", "\x0b", "\x1f", "\ufffe", "\uffff", "\ud800", "\udfff"], repr)
def test_a_character_that_xml_does_not_allow_is_replaced(character: str) -> None:
    assert received_body(with_body(f"a{character}b")) == "a\ufffdb"


def is_in_xml(character: str) -> bool:
    """Whether production 2 of XML 1.0, `Char`, has this character."""
    code = ord(character)
    return code in (0x9, 0xA, 0xD) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


ANY_TEXT = st.text(st.characters() | st.sampled_from("\r\n\t&<>\"'\0\ufffe\ud800"))


@given(ANY_TEXT)
def test_no_text_makes_an_answer_malformed(text: str) -> None:
    expected = "".join(character if is_in_xml(character) else "\ufffd" for character in text)
    attributes = queues.QueueAttributes(attributes={text: text})
    found = parsed(SQS.xml_of("GetQueueAttributes", attributes, text))
    assert found.findtext(f"{AWS}ResponseMetadata/{AWS}RequestId") == expected
    assert [element.text or "" for element in found.iter() if element.tag in (f"{AWS}Name", f"{AWS}Value")] == [
        expected,
        expected,
    ]
    assert received_body(with_body(text)) == expected
    error = parsed(SQS.xml_error(AwsError("a", "b"), text, text))
    assert error.findtext(f"{AWS}Error/{AWS}Message") == expected
    assert error.findtext(f"{AWS}RequestId") == expected


def test_a_large_answer_is_written_once() -> None:
    body = "<\r\n>" * 25_000
    message = messages.ReceivedMessage(message_id="i", receipt_handle="h", md5_of_body="m", body=body)
    answer = messages.ReceivedMessages(messages=(message,) * 10)
    size = len(SQS.xml_of("ReceiveMessage", answer, "r"))
    tracemalloc.start()
    SQS.xml_of("ReceiveMessage", answer, "r")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * size


def test_a_value_without_a_form_in_xml_is_a_bug() -> None:
    class Odd(AnswerStruct, kw_only=True):
        number: Any

    with pytest.raises(TypeError, match="float"):
        SQS.xml_of("Odd", Odd(number=1.5), "r")


def test_any_struct_of_an_answer_can_be_written() -> None:
    class Outer(AnswerStruct, kw_only=True):
        inner: messages.AnsweredValue
        is_on: bool
        nothing: str | None = None

    raw = SQS.xml_of("Outer", Outer(inner=VALUE(data_type="String"), is_on=False), "r")
    assert b"<Inner><DataType>String</DataType></Inner><IsOn>false</IsOn></OuterResult>" in raw
