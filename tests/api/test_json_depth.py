"""JSON in a request has at most `MAX_JSON_DEPTH` levels, wherever it is: receivers read bodies with other parsers."""

import json
from collections.abc import Mapping

import httpx
import pytest

from app.domain.json_depth import MAX_JSON_DEPTH
from tests.api.api_server import ApiServer, pointers, problem

MESSAGES = "/v1/queues/orders/messages"
JSON = {"Content-Type": "application/json"}
EVENT = b'{"specversion":"1.0","id":"1","source":"/shop","type":"placed","data":%b}'
BINARY_EVENT = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "placed"}

REQUESTS: Mapping[str, tuple[str, str, bytes, int, Mapping[str, str]]] = {
    "a body": ("POST", MESSAGES, b'{"body":%b}', 1, {}),
    "a body in a batch": ("POST", f"{MESSAGES}/batch", b'{"messages":[{"body":%b}]}', 3, {}),
    "a body in a unit": ("POST", "/v1/transactions/execute", b'{"sends":[{"queue":"orders","body":%b}]}', 3, {}),
    "raw JSON": ("POST", f"{MESSAGES}/raw", b"%b", 0, JSON),
    "a structured event": (
        "POST",
        f"{MESSAGES}/raw",
        EVENT,
        1,
        {"Content-Type": "application/cloudevents+json"},
    ),
    "a binary event": ("POST", f"{MESSAGES}/raw", b"%b", 0, {**BINARY_EVENT, **JSON}),
}
"""Each with its method, path, content around the JSON, levels of that content, and headers."""


def nested(depth: int) -> bytes:
    return b'[{"a":' * (depth // 2) + (b"[]" if depth % 2 else b"1") + b"}]" * (depth // 2)


async def ask(api: ApiServer, name: str, depth: int) -> httpx.Response:
    """Send this request with JSON of this many levels in all."""
    method, path, content, levels, headers = REQUESTS[name]
    return await api.http.request(method, path, content=content % nested(depth - levels), headers=headers)


@pytest.mark.parametrize("name", REQUESTS)
async def test_the_limit_is_accepted_and_delivered_byte_for_byte(api: ApiServer, name: str) -> None:
    await api.request_json("PUT", "/queues/orders", {})
    answer = await ask(api, name, MAX_JSON_DEPTH)
    assert answer.is_success, answer.text
    assert (await api.http.get(f"{MESSAGES}/1/body")).content == nested(MAX_JSON_DEPTH - REQUESTS[name][3])
    (message,) = await api.receive()
    assert json.dumps(message["body"]).startswith('[{"a": [{"a": ')


@pytest.mark.parametrize("name", REQUESTS)
async def test_one_level_more_is_refused_with_the_limit(api: ApiServer, name: str) -> None:
    await api.request_json("PUT", "/queues/orders", {})
    answer = await ask(api, name, MAX_JSON_DEPTH + 1)
    assert pointers(answer) == [""]
    detail = problem(answer, 422, "invalid-request")["detail"]
    assert detail == f"JSON in a request has at most {MAX_JSON_DEPTH} levels of arrays and objects."
    assert (await api.request_json("GET", "/queues/orders/messages"))["items"] == []


async def test_a_header_with_deep_json_is_refused_with_the_limit(api: ApiServer) -> None:
    headers = {"Peeklock-Properties": b'{"a":' + nested(MAX_JSON_DEPTH) + b"}"}
    answer = await api.http.post(f"{MESSAGES}/raw", content=b"x", headers=headers)
    assert pointers(answer) == ["#/header/Peeklock-Properties"]
    assert f"{MAX_JSON_DEPTH} levels" in problem(answer, 422, "invalid-request")["detail"]


async def test_a_string_of_brackets_is_delivered(api: ApiServer) -> None:
    text = '[{"' * 5000
    await api.send(body={text: [text]})
    (message,) = await api.receive()
    assert message["body"] == {text: [text]}


async def test_bytes_that_are_no_json_have_no_levels(api: ApiServer) -> None:
    content = b"[" * 5000
    assert (await api.http.post(f"{MESSAGES}/raw", content=content)).status_code == 201
    assert (await api.http.get(f"{MESSAGES}/1/body")).content == content
