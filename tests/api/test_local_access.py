"""A server without keys answers programs on its machine, and refuses every request that a web page can make."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.api.application import Application, build_application
from app.api.endpoints.routes import OPERATIONS
from app.broker.access.keys import Authenticator
from app.domain.access import Right
from app.http.local_access import (
    CROSS_SITE,
    FORM_FROM_PAGE,
    HOST_NOT_LOCAL,
    KEY_FROM_PAGE,
    NO_ADMIN_HEADER,
    NOT_JSON,
    LocalAccessPolicy,
    is_loopback_host,
    is_same_origin,
)
from app.http.operation import Operation
from app.http.request_id import RequestIdMiddleware
from tests.api.api_server import ApiServer, open_api_server, problem
from tests.api.expected_rights import PATH_VALUES
from tests.walks import for_each

LOCAL = ["localhost", "localhost:8080", "localhost:", "127.0.0.1", "127.0.0.1:1", "127.255.3.9", "[::1]", "[::1]:8080"]
NOT_LOCAL = [
    "", ":8080", "evil.example", "localhost.evil.example", "evil.localhost", "localhost.", "localhost:80x",
    "localhost:8080:8080", "localhost@evil.example", "127.0.0.1.evil.example", "127.1", "0x7f.0.0.1", "2130706433",
    "0.0.0.0", "128.0.0.1", "10.0.0.1", "::1", "[::1", "[::2]", "[::ffff:127.0.0.1]", "[::1].evil.example", "127.0.0.1,x",
]  # fmt: skip
SAME_ORIGIN = [
    ("http://localhost:8080", "localhost:8080"),
    ("https://localhost:8080", "localhost:8080"),
    ("http://localhost", "localhost"),
    ("http://localhost:80", "localhost"),
    ("http://localhost", "localhost:80"),
    ("https://localhost", "localhost:443"),
    ("http://[::1]:8080", "[::1]:8080"),
]
NOT_SAME_ORIGIN = [
    ("null", "localhost"), ("", "localhost"), ("localhost:8080", "localhost:8080"), ("file://", "localhost"),
    ("http://localhost:3000", "localhost:8080"), ("http://localhost", "localhost:8080"),
    ("https://localhost", "localhost:80"), ("http://127.0.0.1:8080", "localhost:8080"),
    ("http://evil.example", "localhost"), ("http://localhost.evil.example", "localhost"),
    ("http://evil.example@localhost:8080", "localhost:8080"), ("http://localhost:8080/", "localhost:8080"),
    ("http://localhost:8080 http://evil.example", "localhost:8080"), ("http://localhost:99999", "localhost:99999"),
    ("ws://localhost:8080", "localhost:8080"), ("http://[::1", "[::1"),
]  # fmt: skip

JSON_BODY, ANY_BODY, KEYS = (
    LocalAccessPolicy(True, True, False),
    LocalAccessPolicy(True, False, False),
    LocalAccessPolicy(True, True, True),
)
LISTED = LocalAccessPolicy(True, True, False, frozenset({b"https://shop.example"}))
LOCAL_HEADERS = {"host": "localhost:8080"}
PAGE_HEADERS = {**LOCAL_HEADERS, "origin": "http://localhost:8080"}
BODY = {"content-length": "2"}
CHUNKS = {"transfer-encoding": "chunked"}


def of_type(kind: str) -> dict[str, str]:
    return {"content-type": kind}


FORMS = [
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain;charset=UTF-8",
    "Text/Plain",
    "",
]
JSONS = [
    "application/json", "application/json; charset=utf-8", "application/merge-patch+json",
    "application/cloudevents+json", "application/cloudevents-batch+json; charset=utf-8",
]  # fmt: skip
TABLE: list[tuple[LocalAccessPolicy, dict[str, str], str | None]] = [
    (JSON_BODY, {}, HOST_NOT_LOCAL),
    (JSON_BODY, {"host": "evil.example"}, HOST_NOT_LOCAL),
    (JSON_BODY, {"host": "evil.example:8080", "origin": "http://evil.example:8080"}, HOST_NOT_LOCAL),
    (replace(JSON_BODY, requires_local_host=False), {"host": "broker.example"}, None),
    (replace(JSON_BODY, requires_local_host=False), {"host": "broker.example", "origin": "http://evil.example"}, CROSS_SITE),
    (LISTED, {**LOCAL_HEADERS, "origin": "https://shop.example", "sec-fetch-site": "cross-site"}, None),
    (LISTED, {**LOCAL_HEADERS, "origin": "https://shop.example.evil.example"}, CROSS_SITE),
    (LISTED, {**LOCAL_HEADERS, "sec-fetch-site": "cross-site"}, CROSS_SITE),
    (LISTED, {**LOCAL_HEADERS, "origin": "https://shop.example", **BODY, **of_type("text/plain")}, FORM_FROM_PAGE),
    (LISTED, {"host": "evil.example", "origin": "https://shop.example"}, HOST_NOT_LOCAL),
    (JSON_BODY, LOCAL_HEADERS, None),
    (JSON_BODY, PAGE_HEADERS, None),
    (JSON_BODY, {**LOCAL_HEADERS, "origin": "null"}, CROSS_SITE),
    (JSON_BODY, {**LOCAL_HEADERS, "origin": "http://evil.example"}, CROSS_SITE),
    (JSON_BODY, {**LOCAL_HEADERS, "sec-fetch-site": "cross-site"}, CROSS_SITE),
    (JSON_BODY, {**LOCAL_HEADERS, "sec-fetch-site": "same-site"}, CROSS_SITE),
    (JSON_BODY, {**LOCAL_HEADERS, "sec-fetch-site": "same-origin"}, None),
    (JSON_BODY, {**LOCAL_HEADERS, "sec-fetch-site": "none"}, None),
    *[(access, {**LOCAL_HEADERS, **size, **of_type(kind)}, None) for access in (JSON_BODY, ANY_BODY) for size in (BODY, CHUNKS) for kind in FORMS],
    *[(access, {**PAGE_HEADERS, **size, **of_type(kind)}, FORM_FROM_PAGE) for access in (JSON_BODY, ANY_BODY) for size in (BODY, CHUNKS) for kind in FORMS],
    *[(access, {**page, **BODY, **of_type(kind)}, None) for access in (JSON_BODY, ANY_BODY) for page in (LOCAL_HEADERS, PAGE_HEADERS) for kind in JSONS],
    (JSON_BODY, {**PAGE_HEADERS, **BODY}, FORM_FROM_PAGE),
    (JSON_BODY, {**PAGE_HEADERS, "content-length": "0"}, None),
    *[(JSON_BODY, {**page, **BODY, **of_type("application/octet-stream")}, NOT_JSON) for page in (LOCAL_HEADERS, PAGE_HEADERS)],
    *[(ANY_BODY, {**page, **BODY, **of_type("application/octet-stream")}, None) for page in (LOCAL_HEADERS, PAGE_HEADERS)],
    (KEYS, {**LOCAL_HEADERS, **BODY, **of_type("application/json")}, NO_ADMIN_HEADER),
    (KEYS, {**LOCAL_HEADERS, "peeklock-local-admin": "false"}, NO_ADMIN_HEADER),
    (KEYS, {**LOCAL_HEADERS, "peeklock-local-admin": "true"}, None),
    (KEYS, {"host": "evil.example", "peeklock-local-admin": "true"}, HOST_NOT_LOCAL),
    (KEYS, {**LOCAL_HEADERS, "origin": "null", "peeklock-local-admin": "true"}, CROSS_SITE),
    (KEYS, {**PAGE_HEADERS, "peeklock-local-admin": "true"}, None),
    (replace(LISTED, requires_admin_header=True), {**LOCAL_HEADERS, "origin": "https://shop.example", "peeklock-local-admin": "true"}, KEY_FROM_PAGE),
]  # fmt: skip


@for_each("host", LOCAL)
def test_these_hosts_are_this_machine(host: str) -> None:
    assert is_loopback_host(host)


@for_each("host", NOT_LOCAL)
def test_these_hosts_may_be_other_machines(host: str) -> None:
    assert not is_loopback_host(host)


@for_each(("origin", "host"), SAME_ORIGIN)
def test_these_origins_are_the_server_itself(origin: str, host: str) -> None:
    assert is_same_origin(origin, host)


@for_each(("origin", "host"), NOT_SAME_ORIGIN)
def test_these_origins_are_other_sites(origin: str, host: str) -> None:
    assert not is_same_origin(origin, host)


@for_each(("access", "headers", "objection"), TABLE)
def test_which_requests_are_accepted_without_a_key(
    access: LocalAccessPolicy, headers: dict[str, str], objection: str | None
) -> None:
    assert access.violation({name.encode(): value.encode() for name, value in headers.items()}) == objection


@asynccontextmanager
async def open_loopback() -> AsyncIterator[tuple[ApiServer, httpx.AsyncClient]]:
    """A client of a server on loopback, which needs no key until the first one is created."""
    async with open_api_server() as api:
        authenticator = Authenticator(api.broker.store.keys, api.clock, anonymous_without_keys=True)
        api.authenticator = authenticator
        context = replace(api.context, authenticator=authenticator, is_loopback=True)
        transport = httpx.ASGITransport(RequestIdMiddleware(build_application(context)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as http:
            yield api, http
        await authenticator.close()


@pytest.fixture
async def loopback() -> AsyncIterator[httpx.AsyncClient]:
    async with open_loopback() as (_, http):
        yield http


GUARDED = [operation for operation in OPERATIONS if operation.right is not None]


@for_each("operation", GUARDED, lambda operation: operation.name)
@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}], ids=str
)
async def test_no_operation_is_open_to_a_web_page(
    loopback: httpx.AsyncClient, operation: Operation, headers: dict[str, str]
) -> None:
    headers = {**headers, "Peeklock-Local-Admin": "true"}
    answer = await loopback.request(operation.method, operation.path.format(**PATH_VALUES), headers=headers)
    assert "make an API key" in problem(answer, 403, "forbidden")["detail"]


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}], ids=str
)
async def test_the_metrics_name_no_queue_to_a_web_page(loopback: httpx.AsyncClient, headers: dict[str, str]) -> None:
    assert (await loopback.put("/v1/queues/orders", json={})).status_code == 201
    assert 'queue="orders"' in (await loopback.get("/metrics")).text
    seen = await loopback.get("/metrics", headers=headers)
    assert "peeklock_queues 1.0" in seen.text
    assert "orders" not in seen.text


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}], ids=str)
async def test_a_route_that_is_no_operation_is_not_open_to_a_web_page(headers: dict[str, str]) -> None:
    async with open_api_server() as api:
        application = Application(replace(api.context, is_loopback=True))

        @application.get("/added")
        async def read_added() -> str:
            return "added"

        transport = httpx.ASGITransport(RequestIdMiddleware(application))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as http:
            assert (await http.get("/added")).json() == "added"
            problem(await http.get("/added", headers=headers), 403, "forbidden")


CREATE = {"principal": "mallory", "rights": ["manage"]}


async def test_a_form_cannot_create_the_first_key(loopback: httpx.AsyncClient) -> None:
    answers = [
        await loopback.post("/v1/keys", json=CREATE),
        await loopback.post("/v1/keys", content=b"{}", headers={"Content-Type": "text/plain"}),
        await loopback.delete("/v1/keys/x"),
    ]
    for answer in answers:
        assert "Peeklock-Local-Admin: true" in problem(answer, 403, "forbidden")["detail"]
    assert (await loopback.get("/v1/keys")).json()["items"] == []


async def test_a_request_with_the_admin_header_creates_the_first_key(loopback: httpx.AsyncClient) -> None:
    made = await loopback.post("/v1/keys", json=CREATE, headers={"Peeklock-Local-Admin": "true"})
    assert made.status_code == 201
    problem(await loopback.get("/v1/queues"), 401, "unauthenticated")
    headers = {"Authorization": f"Bearer {made.json()['secret']}"}
    assert (await loopback.post("/v1/keys", json=CREATE, headers=headers)).status_code == 201


async def test_a_page_of_any_site_may_use_an_api_key() -> None:
    async with open_loopback() as (api, http):
        headers: dict[str, Any] = {
            "Authorization": f"Bearer {await api.new_key(Right.SEND)}",
            "Host": "broker.example",
            "Origin": "http://pages.example",
            "Sec-Fetch-Site": "cross-site",
            "Content-Type": "text/plain",
        }
        answer = await http.post("/v1/queues/orders/messages", content=b"{}", headers=headers)
        assert answer.status_code == 201
