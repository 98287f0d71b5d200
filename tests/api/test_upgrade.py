"""No operation takes a request for one without a body because the client offers to upgrade to another protocol."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.api.operation import Operation
from app.api.routes import OPERATIONS
from app.server.patience import Patient
from tests.api.house import House
from tests.api.rights import headers_of, path_of
from tests.server.connections import Client, connected, listening
from tests.servers import PATIENCE

WITH_BODY = [operation for operation in OPERATIONS if operation.body is not None]
OFFERS = {
    "h2c": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    "websocket": "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
}
BODY = b"?This is not JSON."
LIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"

each = pytest.mark.parametrize("operation", WITH_BODY, ids=lambda operation: operation.name)
offers = pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)


@pytest.fixture
async def client(house: House) -> AsyncIterator[Client]:
    async with connected(house.front, Patient) as client:
        yield client


def request(method: str, path: str, offer: str, body: bytes) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{offer}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def as_lines(headers: dict[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


def saw_the_body(operation: Operation, status: int, answer: Any) -> bool:
    """Whether an answer is one to `BODY`; none of the shapes of JSON fits it, and every one of them fits none at all."""
    if operation.body is bytes:
        return status == 201 and answer["state"] == "available"
    return (status, answer["code"]) == (422, "invalid-request") and "JSON" in answer["errors"][0]["detail"]


async def stored(house: House) -> list[bytes]:
    """The bodies that the queue holds."""
    page = await house.ask("GET", "/queues/orders/messages")
    return [b64decode(item["body_base64"]) for item in page["items"]]


@each
@offers
@pytest.mark.parametrize("writes", [1, 2])
async def test_the_body_is_read_and_so_is_the_request_behind_it(
    house: House, client: Client, operation: Operation, offer: str, writes: int
) -> None:
    offer += as_lines(headers_of(operation))
    asked = request(operation.method, path_of(operation), offer, BODY)
    if writes == 2:
        await client.tell(asked[: -len(BODY)])
        asked = BODY
    client.say(asked + LIVE)
    status, _, answer = await client.hear()
    assert saw_the_body(operation, status, json.loads(answer))
    assert (await client.hear())[2] == b'{"status":"alive"}'
    if operation.body is bytes:
        assert await stored(house) == [BODY]


async def test_curl_may_offer_http_2(house: House) -> None:
    async with listening(house.front, Patient) as (port, _):
        for operation in WITH_BODY:
            url = f"http://127.0.0.1:{port}{path_of(operation)}"
            given = [f"-H{line}" for line in as_lines(headers_of(operation)).splitlines()]
            status, answer = await curl(*given, "--http2", "-X", operation.method, "--data-binary", BODY.decode(), url)
            assert saw_the_body(operation, status, answer), operation.name
    assert await stored(house) == [BODY]


@offers
async def test_a_purge_removes_what_it_names(house: House, client: Client, offer: str) -> None:
    await house.send(body=1)
    client.say(request("POST", "/v1/queues/orders/purge", offer, b'{"states": ["dead_lettered"]}'))
    assert (await client.hear())[2] == b'{"removed":0}'
    assert await house.counts() == {"available": 1}


@offers
async def test_a_body_is_never_the_next_request(house: House, client: Client, offer: str) -> None:
    inner = request("DELETE", "/v1/queues/orders", "", b"")
    await house.send(body=1)
    await client.tell(request("POST", "/v1/queues/orders/messages/raw", offer, inner)[: -len(inner)])
    client.say(inner + LIVE)
    assert [(await client.hear())[0] for _ in range(2)] == [201, 200]
    assert await house.counts() == {"available": 2}


async def curl(*arguments: str) -> tuple[int, Any]:
    """Status and document of what curl is answered."""
    process = await asyncio.create_subprocess_exec(
        "curl", "-s", "-w", "\n%{http_code}", "--max-time", str(PATIENCE), *arguments, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    answer, _, status = said.decode().rpartition("\n")
    return int(status), json.loads(answer)
