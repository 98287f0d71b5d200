"""Raw receives: the body of the answer is the body of the message, and headers give its other fields."""

import asyncio
import json
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from app.api.endpoints.raw_receive import MAX_MESSAGE_HEADERS_BYTES
from tests.api.api_server import ApiServer, pointers, problem
from tests.virtual_clock import run_ready_tasks

RECEIVE = "/queues/orders/messages/receive/raw"
RAW = "/queues/orders/messages/raw"
TYPED = {"content-type": "application/octet-stream"}


async def receive(api: ApiServer, path: str = RECEIVE, **parameters: Any) -> httpx.Response:
    return await api.request("POST", path, params=parameters)


def message_headers(answer: httpx.Response) -> dict[str, str]:
    """Return the headers that describe the message, as a raw send takes them."""
    names = ("peeklock-message-id", "peeklock-subject", "peeklock-properties", "peeklock-correlation-id")
    return {
        name: value for name, value in answer.headers.items() if name.removesuffix("*") in names
    } | {"content-type": answer.headers["content-type"]}  # fmt: skip


async def test_the_body_is_answered_as_it_was_sent(api: ApiServer) -> None:
    content = bytes(range(256)) * 4
    await api.request("POST", RAW, content=content, headers={"content-type": "application/x-parquet"})
    answer = await receive(api)
    assert (answer.status_code, answer.content) == (200, content)
    assert answer.headers["content-type"] == "application/x-parquet"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("sent", "content_type"), [({"body": {"a": 1}}, "application/json"), ({}, TYPED["content-type"])]
)
async def test_a_json_message_is_answered_as_json(api: ApiServer, sent: dict[str, Any], content_type: str) -> None:
    await api.send(**sent)
    answer = await receive(api)
    assert answer.headers["content-type"] == content_type
    assert answer.content == (b'{"a":1}' if sent else b"")


async def test_headers_give_what_a_receive_answers(api: ApiServer) -> None:
    await api.send(body=1, message_id="m-1", correlation_id="c", reply_to="r", to="t", group_id="g", subject="s")
    headers = (await receive(api)).headers
    expected = {
        "peeklock-sequence-number": "1",
        "peeklock-message-id": "m-1",
        "peeklock-state": "locked",
        "peeklock-priority": "4",
        "peeklock-delivery-count": "1",
        "peeklock-failure-count": "0",
        "peeklock-redelivered": "false",
        "peeklock-first-delivered-at": "2027-01-15T08:00:00.000000Z",
        "peeklock-correlation-id": "c",
        "peeklock-reply-to": "r",
        "peeklock-to": "t",
        "peeklock-group-id": "g",
        "peeklock-subject": "s",
        "peeklock-locked-until": "2027-01-15T08:00:30.000000Z",
        "peeklock-lock-remaining-ms": "30000",
    }
    assert dict(headers).items() >= expected.items()
    assert "peeklock-last-failure" not in headers


async def test_the_token_in_the_header_settles(api: ApiServer) -> None:
    await api.send(body=1)
    message = {"lock_token": (await receive(api)).headers["peeklock-lock-token"]}
    assert (await api.settle(message, "complete")).json()["outcome"] == "completed"


async def test_nothing_to_receive_is_204(api: ApiServer) -> None:
    await api.request("PUT", "/queues/orders", {})
    answer = await receive(api)
    assert (answer.status_code, answer.content) == (204, b"")


TEXTS = ["plain", "Grüße 😀", " edges ", "100%", "x\x85y", "*", "'quoted'"]


@pytest.mark.parametrize("text", TEXTS)
async def test_a_message_is_forwarded_by_its_headers_unchanged(api: ApiServer, text: str) -> None:
    properties = {"Region": text, "line\nbreak": "a\r\nb", "count": 3, "ratio": 1.5, "yes": True, "none": None}
    await api.send(body_base64="AP8=", content_type="image/png", subject=text, message_id=text, properties=properties)
    answer = await receive(api)
    await api.request("POST", "/queues/copies/messages/raw", content=answer.content, headers=message_headers(answer))
    (copy,) = await api.receive("copies")
    expected = {
        "body_base64": "AP8=",
        "content_type": "image/png",
        "subject": text,
        "message_id": text,
        "properties": properties,
    }
    assert copy.items() >= expected.items()


async def test_every_header_is_ascii_on_one_line(api: ApiServer) -> None:
    await api.send(body=1, subject="Grüße", properties={"a": "ü\n"})
    (message,) = await api.receive()
    await api.settle(message, "dead-letter", reason="r\r\nX: 1", description="zwei\nZeilen")
    headers = (await receive(api, source="dead_letter")).headers
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert headers["peeklock-subject*"] == "UTF-8''Gr%C3%BC%C3%9Fe"
    assert unquote(headers["peeklock-dead-letter-reason*"].removeprefix("UTF-8''")) == "r\r\nX: 1"
    assert json.loads(headers["peeklock-properties"]) == {"a": "ü\n"}
    assert "x" not in headers


async def test_fields_that_are_too_large_for_headers_are_named(api: ApiServer) -> None:
    await api.send(body=1, subject="s" * 1024, reply_to="ü" * 1024, properties={"a": "x" * 30_000})
    headers = (await receive(api)).headers
    assert headers["peeklock-omitted"] == "reply_to, properties"
    assert headers["peeklock-subject"] == "s" * 1024
    size = sum(len(name) + len(value) + 4 for name, value in headers.items() if name.startswith("peeklock-"))
    assert size <= MAX_MESSAGE_HEADERS_BYTES + len("peeklock-omitted: reply_to, properties\r\n")
    assert "peeklock-lock-token" in headers


async def test_the_content_type_counts_among_the_headers_of_a_message(api: ApiServer) -> None:
    content_type = "text/plain; a=" + "b" * 1010
    await api.send(body=1, content_type=content_type, subject="s" * 1024, to="t" * 1024, reply_to="r" * 1024)
    headers = (await receive(api)).headers
    assert headers["content-type"] == content_type
    assert headers["peeklock-omitted"] == "to, reply_to"
    size = sum(
        len(name) + len(value) + 4 for name, value in headers.items() if name.startswith(("peeklock-", "content-type"))
    )
    assert size <= MAX_MESSAGE_HEADERS_BYTES + len("peeklock-omitted: to, reply_to\r\n")


async def test_parameters_choose_what_is_received(api: ApiServer) -> None:
    await api.send(body=1, priority=1, message_id="low")
    await api.send(body=2, priority=9, message_id="high")
    filtered = await receive(api, filter="message.priority < 5", lock_seconds=60, receiver_id="shell")
    assert filtered.headers["peeklock-message-id"] == "low"
    assert filtered.headers["peeklock-locked-until"] == "2027-01-15T08:01:00.000000Z"
    taken = await receive(api, mode="receive_and_delete")
    assert (taken.headers["peeklock-state"], taken.content) == ("ended", b"2")
    assert "peeklock-lock-token" not in taken.headers


@pytest.mark.parametrize(
    ("parameters", "pointer"),
    [
        ({"filter": "message."}, "#/query/filter"),
        ({"group_id": "g", "source": "dead_letter"}, "#/query/group_id"),
        ({"mode": "peek"}, "#/query/mode"),
        ({"lock_seconds": "0"}, "#/query/lock_seconds"),
        ({"max_messages": "2"}, "#/query/max_messages"),
    ],
)
async def test_an_invalid_parameter_is_named(api: ApiServer, parameters: dict[str, str], pointer: str) -> None:
    await api.request("PUT", "/queues/orders", {})
    assert pointers(await receive(api, **parameters)) == [pointer]


async def test_a_body_is_refused_because_it_would_go_unread(api: ApiServer) -> None:
    await api.send(body=1)
    assert pointers(await api.request("POST", RECEIVE, {"wait_seconds": 5})) == [""]
    assert (await receive(api)).headers["peeklock-delivery-count"] == "1"


async def test_a_repeated_receive_gets_the_same_message(api: ApiServer) -> None:
    await api.send(body=1)
    await api.send(body=2)
    key = {"idempotency-key": "k"}
    first = await api.request("POST", RECEIVE, headers=key)
    repeat = await api.request("POST", RECEIVE, headers=key)
    assert repeat.headers["peeklock-lock-token"] == first.headers["peeklock-lock-token"]
    assert repeat.headers["idempotency-replayed"] == "true"
    other = await api.request("POST", RECEIVE, headers=key, params={"lock_seconds": 5})
    problem(other, 422, "idempotency-key-reused")


@pytest.mark.parametrize("value", ["latin-1''a", "UTF-8''%FF", "UTF-8''%0A", "Gr", "UTF-8''%"])
async def test_an_extended_header_of_a_send_must_be_well_formed(api: ApiServer, value: str) -> None:
    answer = await api.request("POST", RAW, content=b"", headers={"peeklock-subject*": value})
    assert len(pointers(answer)) == 1


async def test_a_field_is_given_in_one_form(api: ApiServer) -> None:
    headers = {"peeklock-subject": "a", "peeklock-subject*": "UTF-8''b"}
    assert pointers(await api.request("POST", RAW, content=b"", headers=headers)) == ["#/header/Peeklock-Subject*"]


@pytest.mark.parametrize("value", ["{", "[]", '{"a": []}', "", '{"a": 1} x'])
async def test_properties_in_one_header_are_checked(api: ApiServer, value: str) -> None:
    (pointer,) = pointers(await api.request("POST", RAW, content=b"", headers={"peeklock-properties": value}))
    assert pointer.startswith("#/header/Peeklock-Properties")


async def test_properties_in_one_header_are_joined_with_those_in_their_own(api: ApiServer) -> None:
    headers = {"peeklock-properties": '{"Count": 3, "region": "eu"}', "peeklock-property-region": "us"}
    await api.request("POST", RAW, content=b"", headers=headers)
    assert (await api.receive())[0]["properties"] == {"Count": 3, "region": "us"}


async def test_long_texts_never_displace_a_field_of_the_broker(api: ApiServer) -> None:
    texts = {"subject": "ü" * 400, "to": "ü" * 400, "reply_to": "ü" * 400, "correlation_id": "ü" * 128}
    await api.send(body=1, **texts)
    (locked,) = (await api.request_json("GET", "/queues/orders/messages"))["items"]
    headers = (await receive(api)).headers
    assert set(headers["peeklock-omitted"].split(", ")) < set(texts)
    assert headers["peeklock-sequence-number"] == str(locked["sequence_number"])
    assert {"peeklock-lock-token", "peeklock-locked-until", "peeklock-lock-remaining-ms"} <= set(headers)


@pytest.mark.parametrize(
    ("text", "encoded"), [(" edges ", "%20edges%20"), ("a/ü", "a%2F%C3%BC"), ("ü's", "%C3%BC%27s")]
)
async def test_a_text_that_a_header_could_change_is_percent_encoded(api: ApiServer, text: str, encoded: str) -> None:
    await api.request("POST", RAW, content=b"", headers={"peeklock-to*": f"UTF-8''{encoded}"})
    headers = (await receive(api)).headers
    assert ("peeklock-to" in headers, headers["peeklock-to*"]) == (False, f"UTF-8''{encoded}")


async def test_a_trace_context_has_the_header_of_its_standard(api: ApiServer) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    await api.request("POST", RAW, content=b"", headers={"traceparent": trace})
    assert (await receive(api)).headers["traceparent"] == trace


async def test_an_answer_without_a_message_names_the_wait_of_the_header(api: ApiServer) -> None:
    await api.request("PUT", "/queues/orders", {})
    waiting = asyncio.create_task(api.request("POST", RECEIVE, headers={"prefer": "wait=10"}))
    await run_ready_tasks()
    await api.clock.advance(10.1)
    answer = await waiting
    assert (answer.status_code, answer.headers["preference-applied"]) == (204, "wait=10")


async def test_the_charset_of_an_extended_header_may_be_written_in_any_case(api: ApiServer) -> None:
    sent = await api.request("POST", RAW, content=b"", headers={"peeklock-subject*": "utf-8''Gr%C3%BC%C3%9Fe"})
    assert sent.status_code == 201
    assert (await api.receive())[0]["subject"] == "Grüße"


async def test_a_wrong_property_in_the_header_of_properties_is_named(api: ApiServer) -> None:
    answer = await api.request("POST", RAW, content=b"", headers={"peeklock-properties": '{"a": 1, "b/c": []}'})
    assert pointers(answer) == ["#/header/Peeklock-Properties/b~1c"]
