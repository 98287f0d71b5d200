"""A message of the broker as a receiver sees it through SQS."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5
from typing import Any

import msgspec
import pytest

from app.domain.dead_letters import with_source
from app.domain.message import BodyKind, Envelope, Message, MessageHeaders
from app.domain.settlement import LockToken
from app.sqs.errors import InvalidAttributeName
from app.sqs.message_attributes import md5_of_attributes
from app.sqs.message_ids import message_id_of
from app.sqs.new_message import FifoRules, new_message
from app.sqs.received_message import SYSTEM_ATTRIBUTES, WantedAttributes, received_message, wanted_attributes
from app.sqs.shapes.messages import ReceivedMessage, ReceiveMessage, SentMembers
from tests.domain.messages import message
from tests.sqs.attributes import binary, number, string
from tests.sqs.test_trace_header import TRACE_HEADER, TRACEPARENT
from tests.walks import for_each

SECRET = bytes(range(16))
BYTES = b"\x00\xff"


def locked(envelope: Envelope | None = None, body: bytes = b"body", **changes: Any) -> Message:
    """A message in the hands of its receiver for the first time."""
    fields = {"sequence_number": 42, "enqueued_at": 1_700_000_000_123_999, "first_delivered_at": 1_700_000_001_456_999}
    return message(
        envelope=envelope or Envelope("own-id"),
        body=body,
        body_kind=BodyKind.BYTES,
        lock_token=SECRET,
        **{**fields, **changes},
    )


def sent(fifo: FifoRules | None = None, **members: Any) -> Message:
    """A message that was sent through SQS, stored, and received."""
    new = new_message(SentMembers(message_body="body", **members), fifo)
    return locked(new.envelope, new.body)


def wanted(system: Sequence[str] = (), attributes: Sequence[str] = (), queue: str = "orders") -> WantedAttributes:
    request = ReceiveMessage(message_system_attribute_names=tuple(system), message_attribute_names=tuple(attributes))
    return wanted_attributes(request, queue, "eu-west-1")


def system_of(received: Message, *names: str, queue: str = "orders") -> dict[str, str]:
    return received_message(received, wanted(names or ("All",), queue=queue)).attributes


# ---- without attributes ----------------------------------------------------------------------------------------------


def test_a_receiver_that_asks_for_nothing_gets_the_body_and_its_handle() -> None:
    properties = with_source(b'{"a": "x"}', "orders")
    received = received_message(locked(Envelope("m", group_id="g", properties=properties)), wanted())
    assert received == ReceivedMessage(
        message_id=message_id_of(42),
        receipt_handle="42.000102030405060708090a0b0c0d0e0f",
        md5_of_body=md5(b"body").hexdigest(),
        body="body",
    )
    assert set(msgspec.to_builtins(received)) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}


def test_the_receipt_handle_is_the_lock_token() -> None:
    handle = received_message(locked(), wanted()).receipt_handle
    assert LockToken.parse(handle) == LockToken(42, SECRET)


def test_a_receiver_that_asks_for_nothing_does_not_pay_for_properties() -> None:
    unreadable = locked(Envelope("m", properties=b"{"))
    assert received_message(unreadable, wanted()).body == "body"
    with pytest.raises(msgspec.DecodeError):
        received_message(unreadable, wanted(["SentTimestamp"]))


def test_a_message_without_a_lock_is_a_fault_of_the_caller() -> None:
    with pytest.raises(ValueError, match="no receipt handle"):
        received_message(message(lock_token=None), wanted())


# ---- message attributes ----------------------------------------------------------------------------------------------

ATTRIBUTES = {"a": string("x", "String.kind"), "b.one": number("1.10"), "b.two": binary(b"\xff")}


@for_each(
    ("names", "expected"), [(["All"], {"a", "b.one", "b.two"}), (["b.*"], {"b.one", "b.two"}), (["a", "c"], {"a"})]
)
def test_the_digest_covers_the_attributes_that_are_answered(names: list[str], expected: set[str]) -> None:
    received = received_message(sent(message_attributes=ATTRIBUTES), wanted(attributes=names))
    assert received.message_attributes.keys() == expected
    assert received.md5_of_message_attributes == md5_of_attributes({name: ATTRIBUTES[name] for name in expected})
    assert received.attributes == {}


def test_a_message_without_the_attributes_asked_for_has_no_digest() -> None:
    received = received_message(sent(message_attributes=ATTRIBUTES), wanted(attributes=["c"]))
    assert "MD5OfMessageAttributes" not in msgspec.to_builtins(received)
    assert "MessageAttributes" not in msgspec.to_builtins(received)


@for_each("names", [[], ["a"], ["All"]])
def test_a_body_in_base64_always_says_so(names: list[str]) -> None:
    properties = b'{"a": "x", "peeklock.encoding": "gzip"}'
    received = received_message(locked(Envelope("m", properties=properties), BYTES), wanted(attributes=names))
    assert (received.body, received.md5_of_body) == ("AP8=", md5(b"AP8=").hexdigest())
    encoding = received.message_attributes["peeklock.encoding"]
    assert (encoding.data_type, encoding.string_value) == ("String", "base64")
    assert received.md5_of_message_attributes == md5_of_attributes(received.message_attributes)
    assert ("a" in received.message_attributes) == bool(names)


def test_the_mark_of_one_message_is_not_seen_in_another() -> None:
    received_message(locked(body=BYTES), wanted())
    assert received_message(locked(), wanted()).message_attributes == {}


# ---- system attributes -----------------------------------------------------------------------------------------------


def test_all_system_attributes_of_a_message_in_a_standard_queue() -> None:
    assert system_of(locked(failure_count=2, delivery_count=7)) == {
        "SentTimestamp": "1700000000123",
        "ApproximateReceiveCount": "3",
        "ApproximateFirstReceiveTimestamp": "1700000001456",
    }


def test_a_message_that_was_not_received_has_no_time_of_its_first_receive() -> None:
    assert system_of(locked(first_delivered_at=None), "ApproximateFirstReceiveTimestamp") == {}


def test_all_system_attributes_of_a_message_in_a_fifo_queue() -> None:
    first = sent(FifoRules(), message_group_id="g", message_deduplication_id="d")
    assert system_of(first, queue="orders.fifo") == {
        "SentTimestamp": "1700000000123",
        "ApproximateReceiveCount": "1",
        "ApproximateFirstReceiveTimestamp": "1700000001456",
        "SequenceNumber": "00000000000000000042",
        "MessageGroupId": "g",
        "MessageDeduplicationId": "d",
    }


def test_the_own_deduplication_id_is_answered_also_with_the_scope_of_groups() -> None:
    first = sent(FifoRules(scope="messageGroup"), message_group_id="g", message_deduplication_id="d")
    assert system_of(first, "MessageDeduplicationId", queue="a.fifo") == {"MessageDeduplicationId": "d"}
    natively = locked(Envelope("own-id", properties=b'{"sqs:deduplication_id": 5}'))
    assert system_of(natively, "MessageDeduplicationId", queue="a.fifo") == {"MessageDeduplicationId": "own-id"}


def test_a_group_in_a_standard_queue_is_answered() -> None:
    assert system_of(sent(message_group_id="tenant"), "MessageGroupId") == {"MessageGroupId": "tenant"}


@for_each("trace_header", [TRACE_HEADER, TRACE_HEADER + ";Lineage=a:0", "any text"])
def test_a_trace_header_comes_back_exactly(trace_header: str) -> None:
    traced = sent(message_system_attributes={"AWSTraceHeader": string(trace_header)})
    assert system_of(traced, "AWSTraceHeader") == {"AWSTraceHeader": trace_header}


def test_the_traceparent_of_another_sender_is_a_trace_header() -> None:
    envelope = Envelope("m", MessageHeaders(traceparent=TRACEPARENT), properties=b'{"sqs:trace_header": 5}')
    assert system_of(locked(envelope), "AWSTraceHeader") == {"AWSTraceHeader": TRACE_HEADER}


def test_a_dead_letter_names_the_queue_that_it_comes_from() -> None:
    dead = locked(Envelope("m", properties=with_source(b'{"a":"x"}', "orders")))
    received = received_message(dead, wanted(["DeadLetterQueueSourceArn"], ["All"], queue="dead"))
    assert received.attributes == {"DeadLetterQueueSourceArn": "arn:aws:sqs:eu-west-1:000000000000:orders"}
    assert received.message_attributes.keys() == {"a"}


@for_each("properties", [b'{"dead_letter_queue": 5}', b'{"dead_letter_queue": "a:b"}', b'{"dead_letter_queue": ""}'])
def test_a_property_that_names_no_queue_is_no_source(properties: bytes) -> None:
    assert system_of(locked(Envelope("m", properties=properties)), "DeadLetterQueueSourceArn") == {}


def test_a_text_that_xml_cannot_carry_is_left_out() -> None:
    assert system_of(locked(Envelope("m", group_id="\x01")), "MessageGroupId") == {}
    assert system_of(locked(Envelope("\x01")), "MessageDeduplicationId", queue="a.fifo") == {}


def test_both_names_of_the_parameter_count() -> None:
    request = ReceiveMessage(attribute_names=("SentTimestamp",), message_system_attribute_names=("MessageGroupId",))
    assert wanted_attributes(request, "q", "r").system == {"SentTimestamp", "MessageGroupId"}
    older = ReceiveMessage(attribute_names=("All",))
    assert wanted_attributes(older, "q", "r").system == SYSTEM_ATTRIBUTES.keys()


@for_each("name", ["VisibilityTimeout", "all", "", "*", "SentTimestamp ", "\x00" * 500], ids=ascii)
def test_an_unknown_system_attribute_is_refused(name: str) -> None:
    for names in ([name], ["All", name]):
        with pytest.raises(InvalidAttributeName) as refused:
            wanted(names)
        assert refused.value.detail.isprintable()
        assert len(refused.value.detail) < 600
