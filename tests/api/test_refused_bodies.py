"""A refused body is freed with its answer. Garbage collections are rare, so a cycle would keep many bodies in memory."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.api.api_server import ApiServer, open_api_server

KIB = 1 << 10
LARGE = "x" * (256 * KIB)
ORDERS = "/queues/orders"
IDEMPOTENCY = {"Idempotency-Key": "once"}


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """A server with a queue that takes no large messages, where one attempt was made."""
    async with open_api_server() as api:
        await api.request_json("PUT", ORDERS, {"max_message_bytes": 128 * KIB})
        await api.request_json("POST", f"{ORDERS}/messages", {"body": 1}, headers=IDEMPOTENCY)
        yield api


@pytest.fixture
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        pytest.param("messages", {"body": LARGE}, {}, id="a message that is too large"),
        pytest.param("messages", {LARGE: 1}, {}, id="a message with an unknown member"),
        pytest.param("messages", {"message_id": LARGE}, {}, id="a message with an invalid member"),
        pytest.param("messages", {"body": LARGE[: 100 * KIB]}, IDEMPOTENCY, id="a message under a used key"),
        pytest.param("messages/batch", {"messages": [{"body": LARGE}]}, {}, id="a batch"),
        pytest.param("messages/batch", {"messages": [{LARGE: 1}]}, {}, id="an invalid batch"),
        pytest.param("messages/batch", {"messages": [{"body": LARGE}], "atomic": False}, {}, id="an entry"),
        pytest.param("messages/batch", {"messages": [{LARGE: 1}], "atomic": False}, {}, id="an invalid entry"),
        pytest.param("settle", {"settlements": [{"action": LARGE}]}, {}, id="a settlement"),
        pytest.param("messages/receive", {"settlements": [{"action": LARGE}]}, {}, id="a settlement of a receive"),
        pytest.param("messages/receive", {"filter": LARGE}, {}, id="a filter"),
        pytest.param("purge", {"states": [LARGE]}, {}, id="a state"),
    ],
)
async def test_a_refused_body_is_freed_with_its_answer(
    api: ApiServer, path: str, body: dict[str, Any], headers: dict[str, str]
) -> None:
    await refuse(api, path, body, headers)  # fills the caches
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(4):
            await refuse(api, path, body, headers)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < len(LARGE)


async def refuse(api: ApiServer, path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
    """Send a request that is refused. A client library would keep requests in cycles of its own."""
    pieces = [{"type": "http.request", "body": json.dumps(body).encode()}]
    answer: list[Any] = []

    async def receive() -> Any:
        return pieces.pop() if pieces else await asyncio.get_running_loop().create_future()

    async def send(event: Any) -> None:
        answer.append(event)

    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/v1{ORDERS}/{path}",
        "raw_path": f"/v1{ORDERS}/{path}".encode(),
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    await api.middleware(scope, receive, send)
    assert answer[0]["status"] >= 400 or b'"refused"' in answer[1]["body"]
