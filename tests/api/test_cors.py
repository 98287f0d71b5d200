"""Pages of other sites use the server only if their origin is listed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from app.api.application import build_application
from app.api.endpoints.routes import OPERATIONS
from app.domain.access import Right
from app.http.request_id import RequestIdMiddleware
from tests.api.api_server import ApiServer, problem

SHOP = "https://shop.example"
ASKED = {"Origin": SHOP, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


@pytest.fixture
async def client(api_with_keys: ApiServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that pages of one origin may use, with a key that may send."""
    context = replace(api_with_keys.context, allowed_origins=frozenset({SHOP.encode()}))
    transport = httpx.ASGITransport(RequestIdMiddleware(build_application(context)))
    authorization = {"Authorization": f"Bearer {await api_with_keys.new_key(Right.SEND)}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://peeklock.test", headers=authorization) as client:
        yield client


async def test_a_listed_page_sends_a_message_and_reads_the_answer(client: httpx.AsyncClient) -> None:
    permission = await client.options("/v1/queues/orders/messages", headers=ASKED)
    assert permission.status_code == 200
    assert permission.headers["access-control-allow-origin"] == SHOP
    assert "POST" in permission.headers["access-control-allow-methods"]
    assert permission.headers["access-control-allow-headers"] == "authorization"
    assert permission.headers["access-control-max-age"] == "600"
    sent = await client.post("/v1/queues/orders/messages", json={"body": 1}, headers={"Origin": SHOP})
    assert (sent.status_code, sent.headers["access-control-allow-origin"]) == (201, SHOP)
    # Every header, as long as the page sends no cookies. A list would be larger than a message's headers may be.
    assert sent.headers["access-control-expose-headers"] == "*"
    assert "access-control-allow-credentials" not in sent.headers


@pytest.mark.parametrize("method", sorted({operation.method for operation in OPERATIONS} | {"HEAD"}))
async def test_a_listed_page_may_use_every_method_with_every_header(client: httpx.AsyncClient, method: str) -> None:
    headers = "authorization,content-type,idempotency-key,if-match,if-none-match,peeklock-subject,prefer,traceparent"
    asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
    permission = await client.options("/v1/queues/orders", headers={**ASKED, **asked})
    assert permission.status_code == 200
    assert method in permission.headers["access-control-allow-methods"].split(", ")
    assert permission.headers["access-control-allow-headers"] == headers


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"Origin": "https://other.example"}, "https://other.example"),
        ({"Access-Control-Request-Method": "TRACE"}, "TRACE"),
        ({"Access-Control-Request-Private-Network": "true"}, "private network"),
    ],
    ids=str,
)
async def test_a_refused_permission_is_a_problem_that_says_what_is_not_permitted(
    client: httpx.AsyncClient, asked: dict[str, str], named: str
) -> None:
    refused = await client.options("/v1/queues/orders/messages", headers={**ASKED, "X-Request-Id": "mine", **asked})
    assert named in problem(refused, 403, "forbidden")["detail"]
    assert (refused.json()["tracking_id"], refused.headers["vary"]) == ("mine", "Origin")


async def test_another_page_gets_no_permission(client: httpx.AsyncClient) -> None:
    other = "https://other.example"
    permission = await client.options("/v1/queues/orders/messages", headers={**ASKED, "Origin": other})
    assert "access-control-allow-origin" not in permission.headers
    sent = await client.post("/v1/queues/orders/messages", json={}, headers={"Origin": other})
    assert "access-control-allow-origin" not in sent.headers


async def test_without_an_origin_in_the_settings_no_page_gets_permission(api: ApiServer) -> None:
    assert (await api.http.options("/v1/queues/orders/messages", headers=ASKED)).status_code == 405
