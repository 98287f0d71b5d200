"""What a sender says through SQS becomes a message of the broker."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.instant import SECOND
from app.domain.message import MAX_PROPERTIES_BYTES, BodyKind
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import InvalidRequest, Refusal
from app.domain.sending import NewMessage
from app.sqs.errors import InvalidMessageContents, MissingParameter, aws_error
from app.sqs.new_message import FifoRules, fifo_rules, new_message
from app.sqs.shapes.messages import AttributeValue, SentMembers
from app.wire.properties import properties_of
from app.wire.text_bodies import text_of
from tests.sqs.attributes import number, string
from tests.sqs.test_trace_header import TRACE_HEADER, TRACEPARENT
from tests.walks import for_each

BY_BODY = FifoRules(content_based=True)
BY_GROUP = FifoRules(scope="messageGroup")


def sent(fifo: FifoRules | None = None, body: str = "body", **members: Any) -> NewMessage:
    return new_message(SentMembers(message_body=body, **members), fifo)


def sent_to_group(fifo: FifoRules, group: str = "g", **members: Any) -> NewMessage:
    return sent(fifo, message_group_id=group, **members)


def refused(fifo: FifoRules | None = None, **members: Any) -> Refusal:
    with pytest.raises(InvalidRequest) as error:
        sent(fifo, **members)
    return error.value


def stored(message: NewMessage) -> dict[str, Any]:
    return properties_of(message.envelope.properties)


# ---- body and attributes ---------------------------------------------------------------------------------------------


def test_a_body_is_stored_as_text_that_the_api_shows_as_text() -> None:
    message = sent(body='{"é": 1}\t\r\n')
    assert (message.body, message.body_kind) == ('{"é": 1}\t\r\n'.encode(), BodyKind.BYTES)
    assert text_of(message.body, message.envelope.headers.content_type) == '{"é": 1}\t\r\n'


def test_attributes_are_stored_as_properties() -> None:
    message = sent(message_attributes={"kind": string("order"), "price": number("1.10")})
    properties = stored(message)
    assert (properties["kind"], properties["price"]) == ("order", 1.1)
    assert json.loads(properties["sqs:attributes"]) == {"price": ["Number", "1.10"]}
    assert sent().envelope.properties == b""


def test_body_and_attributes_are_checked() -> None:
    assert isinstance(refused(body=""), MissingParameter)
    assert isinstance(refused(body="\x00"), InvalidMessageContents)
    assert "a:b" in refused(message_attributes={"a:b": string("x")}).detail


def test_attributes_have_the_bytes_of_properties() -> None:
    name_and_quotes = len('{"a":""}')
    sent(message_attributes={"a": string("x" * (MAX_PROPERTIES_BYTES - name_and_quotes))})
    error = refused(message_attributes={"a": string("x" * (MAX_PROPERTIES_BYTES - name_and_quotes + 1))})
    assert "attributes of a message have at most 32768 bytes" in error.detail
    assert aws_error(error).code == "InvalidParameterValue"


# ---- trace contexts --------------------------------------------------------------------------------------------------


def traced(trace_header: str, **attributes: AttributeValue) -> NewMessage:
    return sent(message_system_attributes={"AWSTraceHeader": string(trace_header)}, message_attributes=attributes)


def test_a_trace_header_is_the_traceparent_of_the_message() -> None:
    message = traced(TRACE_HEADER)
    assert message.envelope.headers.traceparent == TRACEPARENT
    assert stored(message) == {}


@for_each(
    ("trace_header", "traceparent"),
    [(TRACE_HEADER + ";Lineage=a:0", TRACEPARENT), (TRACE_HEADER.replace("Root=", "Root=x"), None), ("any text", None)],
)
def test_a_trace_header_that_would_not_come_back_is_kept(trace_header: str, traceparent: str | None) -> None:
    message = traced(trace_header)
    assert message.envelope.headers.traceparent == traceparent
    assert stored(message) == {"sqs:trace_header": trace_header}


def test_an_attribute_traceparent_is_the_traceparent_too() -> None:
    message = sent(message_attributes={"traceparent": string(TRACEPARENT)})
    assert message.envelope.headers.traceparent == TRACEPARENT
    assert stored(message) == {"traceparent": TRACEPARENT}


@for_each("attribute", [string("00-1-2-3"), string(TRACEPARENT + "\n"), number("5")], ids=str)
def test_another_attribute_of_this_name_is_only_an_attribute(attribute: AttributeValue) -> None:
    assert traced(TRACE_HEADER, traceparent=attribute).envelope.headers.traceparent == TRACEPARENT


def test_an_attribute_traceparent_comes_before_a_trace_header_which_is_kept() -> None:
    other = TRACEPARENT.replace("53995c", "000001")
    message = traced(TRACE_HEADER, traceparent=string(other))
    assert message.envelope.headers.traceparent == other
    assert stored(message) == {"traceparent": other, "sqs:trace_header": TRACE_HEADER}


@for_each(
    "attribute",
    [
        string(""),
        string(TRACE_HEADER, "String.x"),
        number("5"),
        AttributeValue(data_type="Binary", binary_value="eA=="),
        AttributeValue(data_type="String"),
        AttributeValue(data_type="x", string_value=TRACE_HEADER),
    ],
    ids=str,
)
def test_a_trace_header_is_a_string(attribute: AttributeValue) -> None:
    error = refused(message_system_attributes={"AWSTraceHeader": attribute})
    assert "AWSTraceHeader" in error.detail
    assert aws_error(error).code == "InvalidParameterValue"


# ---- standard queues -------------------------------------------------------------------------------------------------


def test_the_broker_makes_the_id_of_a_message_in_a_standard_queue() -> None:
    assert sent().envelope.message_id == ""


def test_a_group_in_a_standard_queue_is_the_group_of_fair_queues() -> None:
    assert sent(message_group_id="tenant").envelope.group_id == "tenant"
    assert sent().envelope.group_id is None


def test_a_deduplication_id_needs_a_fifo_queue() -> None:
    error = refused(message_deduplication_id="d")
    assert "standard queue" in error.detail
    assert aws_error(error).code == "InvalidParameterValue"


@for_each(("seconds", "delay"), [(None, None), (0, 0), (1, SECOND), (604_800, 604_800 * SECOND)])
def test_a_delay_of_a_message_wins_over_that_of_its_queue_also_0(seconds: int | None, delay: int | None) -> None:
    assert sent(delay_seconds=seconds).delay == delay


# ---- FIFO queues -----------------------------------------------------------------------------------------------------


@for_each(
    ("name", "labels", "expected"),
    [
        ("orders", {}, None),
        ("orders", {"sqs:ContentBasedDeduplication": "true"}, None),
        ("orders.fifo", {}, FifoRules()),
        ("orders.fifo", {"sqs:ContentBasedDeduplication": "true"}, BY_BODY),
        ("orders.fifo", {"sqs:DeduplicationScope": "messageGroup"}, BY_GROUP),
    ],
)
def test_the_rules_of_a_queue_follow_from_its_name_and_labels(
    name: str, labels: dict[str, str], expected: FifoRules | None
) -> None:
    assert fifo_rules(Queue(1, name, QueueSettings(labels=labels), 1, 0, 0)) == expected


@for_each("fifo", [FifoRules(), BY_BODY], ids=str)
def test_the_deduplication_id_is_the_id_of_the_message(fifo: FifoRules) -> None:
    message = sent_to_group(fifo, message_deduplication_id="d")
    assert (message.envelope.message_id, message.envelope.group_id) == ("d", "g")
    assert stored(message) == {}


def test_with_content_based_deduplication_the_id_is_the_sha_256_of_the_body_alone() -> None:
    messages = [sent_to_group(BY_BODY, body="é"), sent_to_group(BY_BODY, group="h", body="é")]
    messages.append(sent_to_group(BY_BODY, body="é", message_attributes={"a": string("x")}))
    assert {message.envelope.message_id for message in messages} == {sha256("é".encode()).hexdigest()}


def test_without_an_id_and_content_based_deduplication_a_message_is_refused() -> None:
    for fifo in (FifoRules(), BY_GROUP):
        error = refused(fifo, message_group_id="g")
        assert "needs MessageDeduplicationId" in error.detail
        assert aws_error(error).code == "InvalidParameterValue"


def test_a_message_without_a_group_is_refused() -> None:
    error = refused(BY_BODY, message_deduplication_id="d")
    assert "MessageGroupId" in error.detail
    assert aws_error(error).code == "MissingParameter"


GIVEN_IDS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=3)


@given(GIVEN_IDS, GIVEN_IDS, GIVEN_IDS, GIVEN_IDS)
def test_with_the_scope_of_groups_ids_are_equal_only_in_one_group(
    group: str, sent_id: str, other: str, second: str
) -> None:
    one = sent_to_group(BY_GROUP, group, message_deduplication_id=sent_id)
    two = sent_to_group(BY_GROUP, other, message_deduplication_id=second)
    assert (one.envelope.message_id == two.envelope.message_id) == ((group, sent_id) == (other, second))
    assert stored(one) == {"sqs:deduplication_id": sent_id}


def test_with_the_scope_of_groups_the_digest_of_a_body_is_kept_too() -> None:
    message = sent_to_group(FifoRules(content_based=True, scope="messageGroup"))
    body_id = sha256(b"body").hexdigest()
    assert message.envelope.message_id == sha256(f"g {body_id}".encode()).hexdigest()
    assert stored(message) == {"sqs:deduplication_id": body_id}


def test_a_fifo_queue_delays_all_messages_alike() -> None:
    assert sent_to_group(BY_BODY).delay is None
    assert sent_to_group(BY_BODY, delay_seconds=0).delay is None
    error = refused(BY_BODY, message_group_id="g", delay_seconds=2)
    assert "DelaySeconds" in error.detail
    assert aws_error(error).code == "InvalidParameterValue"
