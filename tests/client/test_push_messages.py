"""What a push sends of a message: its body and type as they were sent, and its fields in headers that nothing can break."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import httpx
import msgspec
import pytest
from peeklock_client import RetryLimits
from peeklock_client.generated import answers
from peeklock_client.messages import message_of
from peeklock_client.push.events import event_of
from peeklock_client.push.headers import FIELDS, MAX_BYTES, message_headers
from peeklock_client.push.raw_messages import (
    RawConnection,
    RawReceived,
    RawRecovered,
    RawView,
    content_of,
    properties_of,
)

from tests.client.push_network import PushedRequest, ScriptedNetwork, always, push
from tests.client.virtual_broker import Broker

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def pushed(**fields: Any) -> PushedRequest:
    """Push one message with these fields, and return the request. A body that is None is left out."""
    network = ScriptedNetwork(always(200))
    push(Broker(1, fields=fields), network, until=1)
    [request] = network.requests
    return request


@pytest.mark.parametrize(
    ("fields", "body", "content_type"),
    [
        ({"body": {"order": 17}}, b'{"order":17}', "application/json"),
        ({"body": {"order": 17}, "content_type": "application/vnd.order+json"}, b'{"order":17}', "application/vnd.order+json"),
        ({"body": "text"}, b'"text"', "application/json"),
        ({"body": "text", "content_type": "application/json"}, b'"text"', "application/json"),
        ({"body": "täxt\n", "content_type": "text/plain"}, "täxt\n".encode(), "text/plain"),
        ({"body": "t", "content_type": 'Text/CSV; charset="UTF-8"'}, b"t", 'Text/CSV; charset="UTF-8"'),
        ({"body": "t", "content_type": "text/plain; charset=us-ascii"}, b"t", "text/plain; charset=us-ascii"),
        ({"body": "t", "content_type": "text/plain; charset=latin-1"}, b'"t"', "text/plain; charset=latin-1"),
        ({"body": "t", "content_type": "text/x+json"}, b'"t"', "text/x+json"),
        ({"body": "t\x01", "content_type": "text/plain"}, b'"t\\u0001"', "text/plain"),
        ({"body": None}, b"null", "application/json"),
        ({"body": 1e300}, b"1e+300", "application/json"),
        ({"body_base64": "AP8="}, b"\x00\xff", "application/octet-stream"),
        ({"body_base64": "AP8=", "content_type": "image/png"}, b"\x00\xff", "image/png"),
        ({"body_base64": "AP8=", "content_type": " image/png "}, b"\x00\xff", "image/png"),
    ],
)  # fmt: skip
def test_body_and_type_are_those_that_were_sent(fields: dict[str, Any], body: bytes, content_type: str) -> None:
    request = pushed(**fields)
    assert (request.body, request.headers["content-type"]) == (body, content_type)


@pytest.mark.parametrize(
    "body", [b'{ "a" :\n1.0, "a": 2 }', b"1E5", b"9" * 400, b"9" * 5000, '"\u2028"'.encode(), b"-0", b"  7 "]
)
def test_json_keeps_its_bytes(body: bytes) -> None:
    answer = msgspec.json.encode({"messages": [whole(body=msgspec.Raw(body.strip()))]})
    [decoded] = decode(answer).messages
    assert bytes(message_of(decoded).body) == body.strip()


def decode(answer: bytes) -> RawReceived:
    connection = RawConnection("http://peeklock.test", None, RetryLimits(), httpx.AsyncClient())
    return connection.decode(answer, answers.ReceivedMessages)


@pytest.mark.parametrize("body", [b'"\\ud83d"', b'{"a": "\\udc00", "n": 1e400}'])
def test_json_that_the_decoder_refuses_is_passed_on_with_the_same_meaning(body: bytes) -> None:
    [decoded] = decode(msgspec.json.encode({"messages": [whole()]}).replace(b'"body":1', b'"body":' + body)).messages
    assert json.loads(bytes(message_of(decoded).body)) == json.loads(body)


def test_a_recovered_message_keeps_its_bytes_too() -> None:
    answer = msgspec.json.encode({"messages": [whole(body=msgspec.Raw(b"1E5"), properties=msgspec.Raw(b'{"n":1.0}'))]})
    connection = RawConnection("http://peeklock.test", None, RetryLimits(), httpx.AsyncClient())
    message = message_of(connection.decode(answer, answers.RecoveredMessages).messages[0])
    assert (content_of(message), properties_of(message)) == ((b"1E5", "application/json"), b'{"n":1.0}')


@pytest.mark.parametrize("content_type", [None, "image/png"])
def test_a_message_without_a_body_gets_no_type_that_it_was_not_sent_with(content_type: str | None) -> None:
    assert content_of(message_of(decoded_view({"body": None, "content_type": content_type}))) == (b"", content_type)


def test_a_message_without_a_body_is_an_event_without_data() -> None:
    event = json.loads(event_of("orders", message_of(decoded_view({"body": None}))))
    assert {"data", "data_base64", "datacontenttype"}.isdisjoint(event)


def whole(**fields: Any) -> dict[str, Any]:
    """Return a message as an answer has it, without the fields that are None."""
    known: dict[str, Any] = {
        "sequence_number": 1, "message_id": "1", "state": "locked", "priority": 4, "body": 1,
        "enqueued_at": "2026-01-01T00:00:00Z", "available_at": "2026-01-01T00:00:00Z", "delivery_count": 2,
        "failure_count": 1, "redelivered": True, "lock_token": "1.t", "lock_remaining_ms": 30000,
    }  # fmt: skip
    return {name: value for name, value in (known | fields).items() if value is not None}


def headers(**fields: Any) -> dict[str, str]:
    """Return the headers of a message with these fields."""
    view = decoded_view(fields)
    return {name.decode(): value.decode("ascii") for name, value in message_headers("orders", message_of(view))}


def decoded_view(fields: dict[str, Any]) -> RawView:
    return msgspec.json.decode(msgspec.json.encode(whole(**fields)), type=RawView)


def test_counts_times_and_texts_are_headers() -> None:
    given = headers(
        message_id="order-17", correlation_id="basket-3", subject="order.placed", reply_to="answers", to="shop",
        group_id="customer-8", expires_at="2026-01-02T00:00:00.5+00:00", first_delivered_at="2026-01-01T00:00:01Z",
        last_failure="http_500", properties={"region": "eu", "attempt": 1},
    )  # fmt: skip
    assert given == {
        "peeklock-queue": "orders",
        "peeklock-sequence-number": "1",
        "peeklock-delivery-count": "2",
        "peeklock-failure-count": "1",
        "peeklock-redelivered": "true",
        "peeklock-priority": "4",
        "peeklock-enqueued-at": "2026-01-01T00:00:00Z",
        "peeklock-available-at": "2026-01-01T00:00:00Z",
        "peeklock-expires-at": "2026-01-02T00:00:00.500000Z",
        "peeklock-first-delivered-at": "2026-01-01T00:00:01Z",
        "peeklock-message-id": "order-17",
        "peeklock-group-id": "customer-8",
        "peeklock-correlation-id": "basket-3",
        "peeklock-subject": "order.placed",
        "peeklock-to": "shop",
        "peeklock-reply-to": "answers",
        "peeklock-last-failure": "http_500",
        "peeklock-properties": '{"region":"eu","attempt":1}',
    }


@pytest.mark.parametrize("text", ["Grüße", "x\r\nSet-Cookie: a=b", "x\0", " x", "x\t", "x\x7f", "\u2028", "100%\n"])
def test_a_text_that_no_header_can_have_is_percent_encoded(text: str) -> None:
    given = headers(subject=text)
    assert "peeklock-subject" not in given
    value = given["peeklock-subject*"]
    assert value.startswith("UTF-8''")
    assert (value.isascii(), value.isprintable(), unquote(value.removeprefix("UTF-8''"))) == (True, True, text)


@pytest.mark.parametrize(
    "properties", [{"name": "Grüße 😀"}, {"a\r\nb": "c\r\nd", "e": None}, {"n": 10**400}, {"x\x7f": 1}]
)
def test_properties_are_json_in_ascii_without_line_breaks(properties: dict[str, Any]) -> None:
    view = decoded_view({"properties": msgspec.Raw(json.dumps(properties, ensure_ascii=False, indent=1).encode())})
    [value] = [value for name, value in message_headers("orders", message_of(view)) if name == b"peeklock-properties"]
    assert (value.isascii(), b"\r" in value, b"\n" in value, json.loads(value)) == (True, False, False, properties)


def test_fields_that_do_not_fit_are_named() -> None:
    given = headers(subject="s" * MAX_BYTES, properties={"p": "p" * MAX_BYTES})
    assert given["peeklock-omitted"] == "subject, properties"
    assert given["peeklock-sequence-number"] == "1"
    assert sum(len(name) + len(value) + 4 for name, value in given.items()) < MAX_BYTES + 100


def test_each_field_of_a_message_is_a_header_but_those_of_the_lock() -> None:
    apart = {"state", "content_type", "traceparent", "properties", "receiver_id", "locked_until"}
    from_answers = {"body", "body_base64", "lock_token", "lock_remaining_ms", "delivery"}
    assert {*FIELDS} == {*answers.ReceivedMessage.__struct_fields__} - apart - from_answers


def test_the_trace_of_the_message_is_that_of_the_request() -> None:
    assert pushed(traceparent=TRACE).headers["traceparent"] == TRACE
    assert "traceparent" not in pushed().headers


def test_raw_answers_have_the_fields_of_the_others() -> None:
    for raw, plain in ((RawReceived, answers.ReceivedMessages), (RawRecovered, answers.RecoveredMessages)):
        assert {*raw.__struct_fields__} == {*plain.__struct_fields__}
    assert {*RawView.__struct_fields__} == {*answers.ReceivedMessage.__struct_fields__}
