"""An offer to upgrade to another protocol does not hide the body of a request from any operation."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.api.endpoints.routes import OPERATIONS
from app.http.operation import Operation
from app.server.read_timeout import TimedConnection
from tests.api.api_server import ApiServer
from tests.api.expected_rights import headers_of, path_of
from tests.server.connections import Client, open_client, open_server
from tests.servers import TIMEOUT_SECONDS
from tests.walks import for_each

WITH_BODY = [operation for operation in OPERATIONS if operation.body is not None]
OFFERS = {
    "h2c": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    "websocket": "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
}
BODY = b"?This is not JSON."
LIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"

offers = pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)


@pytest.fixture
async def client(api: ApiServer) -> AsyncIterator[Client]:
    async with open_client(api.middleware, TimedConnection) as client:
        yield client


def request(method: str, path: str, offer: str, body: bytes) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{offer}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def header_lines(headers: dict[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


def is_about_body(operation: Operation, status: int, answer: Any) -> bool:
    """Return whether an answer shows that `BODY` was read: each operation with a JSON body refuses it."""
    if operation.body is bytes:
        return status == 201 and ("state" in answer or answer["stored"])
    return (status, answer["code"]) == (422, "invalid-request") and "JSON" in answer["errors"][0]["detail"]


async def subscribe(api: ApiServer) -> None:
    """Let the topic `orders` send to the queue `orders`."""
    await api.request_json("PUT", "/queues/orders", {})
    await api.request_json("PUT", "/topics/orders", {})
    await api.request_json("PUT", "/topics/orders/subscriptions/s", {"target_queue": "orders"})


async def stored(api: ApiServer) -> list[bytes]:
    """Return the bodies of the messages in the queue."""
    page = await api.request_json("GET", "/queues/orders/messages")
    return [b64decode(item["body_base64"]) for item in page["items"]]


@for_each("operation", WITH_BODY, lambda operation: operation.name)
@offers
@pytest.mark.parametrize("writes", [1, 2])
async def test_the_body_and_the_next_request_are_read(
    api: ApiServer, operation: Operation, offer: str, writes: int
) -> None:
    await subscribe(api)
    before = await stored(api)
    asked = request(operation.method, path_of(operation), offer + header_lines(headers_of(operation)), BODY)
    async with open_client(api.middleware, TimedConnection) as client:
        if writes == 2:
            await client.send_and_wait(asked[: -len(BODY)])
            asked = BODY
        client.send(asked + LIVE)
        status, _, answer = await client.read_response()
        assert is_about_body(operation, status, json.loads(answer))
        assert (await client.read_response())[2] == b'{"status":"alive"}'
    assert await stored(api) == [*before, *([BODY] if operation.body is bytes else [])]


async def test_curl_may_offer_http_2(api: ApiServer) -> None:
    await subscribe(api)
    async with open_server(api.middleware, TimedConnection) as (port, _):
        for operation in WITH_BODY:
            url = f"http://127.0.0.1:{port}{path_of(operation)}"
            given = [f"-H{line}" for line in header_lines(headers_of(operation)).splitlines()]
            status, answer = await curl(*given, "--http2", "-X", operation.method, "--data-binary", BODY.decode(), url)
            assert is_about_body(operation, status, answer), operation.name
    assert await stored(api) == [BODY] * sum(operation.body is bytes for operation in WITH_BODY)


@offers
async def test_a_purge_removes_what_it_names(api: ApiServer, client: Client, offer: str) -> None:
    await api.send(body=1)
    client.send(request("POST", "/v1/queues/orders/purge", offer, b'{"states": ["dead_lettered"]}'))
    assert (await client.read_response())[2] == b'{"removed":0}'
    assert await api.counts() == {"available": 1}


@offers
async def test_a_body_is_never_the_next_request(api: ApiServer, client: Client, offer: str) -> None:
    inner = request("DELETE", "/v1/queues/orders", "", b"")
    await api.send(body=1)
    await client.send_and_wait(request("POST", "/v1/queues/orders/messages/raw", offer, inner)[: -len(inner)])
    client.send(inner + LIVE)
    assert [(await client.read_response())[0] for _ in range(2)] == [201, 200]
    assert await api.counts() == {"available": 2}


async def curl(*arguments: str) -> tuple[int, Any]:
    """Return the status and the document of an answer to curl."""
    process = await asyncio.create_subprocess_exec(
        "curl",
        "-s",
        "-w",
        "\n%{http_code}",
        "--max-time",
        str(TIMEOUT_SECONDS),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    answer, _, status = output.decode().rpartition("\n")
    return int(status), json.loads(answer)
