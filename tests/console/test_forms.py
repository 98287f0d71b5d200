"""Forms and addresses are read within limits: other clients than browsers send them too."""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from app.console.access import COOKIE, CSRF_HEADER, csrf_token
from app.console.application import ROUTERS
from app.console.forms import FORM_COPIES, FORM_TYPE, MAX_FIELD_BYTES, MAX_FIELDS, MAX_FORM_BYTES
from app.domain.access import Right
from tests.console.console_server import ConsoleServer
from tests.walks import for_each

TOKEN_PART = b'--x\r\nContent-Disposition: form-data; name="csrf_token"\r\n\r\n+2AA-\\ud800\r\n'
FILE_PART = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n1\r\n'
PART = 64 << 10

FORMS = [
    re.sub(r"\{\w+\}", "1", route.path.removeprefix("/console"))
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and "POST" in route.methods
]
"""The path of each form of the console."""


async def post(
    console: ConsoleServer, path: str, content: bytes | str | AsyncIterator[bytes], media_type: str = FORM_TYPE
) -> httpx.Response:
    """Send the body of a form."""
    return await console.http.post(f"/console{path}", content=content, headers={"content-type": media_type})


@pytest.mark.parametrize(
    "media_type",
    ["multipart/form-data; boundary=x; charset=utf-7", "multipart/form-data; boundary=x", "application/json", ""],
)
async def test_a_body_of_another_kind_has_no_fields(console: ConsoleServer, media_type: str) -> None:
    response = await post(console, "/sign-in", TOKEN_PART + FILE_PART + b"--x--\r\n", media_type)
    assert response.status_code == 403
    assert "This form was not sent by a page of this console" in response.text


def test_the_tests_of_every_form_find_the_forms() -> None:
    assert len(FORMS) == len(set(FORMS)) > 20
    assert {"/sign-in", "/sign-out", "/keys", "/queues/1/status", "/transactions/1/rollback"} <= set(FORMS)


@for_each("path", FORMS)
async def test_every_form_refuses_a_field_that_it_does_not_have(console: ConsoleServer, path: str) -> None:
    response = await console.post(path, dry_run="true")
    assert (response.status_code, "This form has no field `dry_run`." in response.text) == (422, True)


@for_each("path", FORMS)
async def test_every_form_refuses_a_field_that_is_given_twice(console: ConsoleServer, path: str) -> None:
    await console.get()
    token = csrf_token(console.http.cookies[COOKIE])
    response = await post(console, path, f"csrf_token={token}&csrf_token={token}")
    assert (response.status_code, "This form gives the field `csrf_token` twice." in response.text) == (422, True)


@for_each("path", FORMS)
async def test_every_form_refuses_a_field_that_is_too_large(console: ConsoleServer, path: str) -> None:
    response = await console.post(path, name="1" * (MAX_FIELD_BYTES + 1))
    assert response.status_code == 400
    assert "1111" not in response.text


@for_each("path", FORMS)
async def test_every_form_refuses_a_body_that_is_no_form(console: ConsoleServer, path: str) -> None:
    await console.get()
    token = {CSRF_HEADER: csrf_token(console.http.cookies[COOKIE])}
    response = await console.http.post(f"/console{path}", json={"dry_run": True}, headers=token)
    assert (response.status_code, FORM_TYPE in response.text) == (422, True)


async def test_a_form_has_a_limited_number_of_fields(console: ConsoleServer) -> None:
    response = await post(console, "/sign-in", b"&".join(b"a=1" for _ in range(MAX_FIELDS + 1)))
    assert response.status_code == 400
    assert "Too many fields" in response.text


async def test_a_form_has_a_limit_in_bytes(console: ConsoleServer) -> None:
    fields = b"&".join(b"a=" + b"1" * (512 << 10) for _ in range(5))
    response = await post(console, "/queues/orders/send", fields)
    assert response.status_code == 413
    assert f"A form has at most {MAX_FORM_BYTES} bytes." in response.text


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"a=1&" * MAX_FIELDS + b"a=1", 400),
        (b"a=" + b"1" * (MAX_FIELD_BYTES + 1), 400),
        (b"a=" + b"1" * MAX_FORM_BYTES, 413),
    ],
)
async def test_a_form_of_a_known_visitor_that_was_refused_is_not_read_again(
    console: ConsoleServer, content: bytes, status: int
) -> None:
    await console.get()
    parts, started = [{"type": "http.request", "body": content, "more_body": False}], list[int]()

    async def receive() -> dict[str, Any]:
        assert parts, "a server would wait here until the browser leaves"
        return parts.pop()

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            started.append(message["status"])

    path, cookie = "/console/queues/orders/send", f"{COOKIE}={console.http.cookies[COOKIE]}"
    headers = [(b"host", b"peeklock.test"), (b"cookie", cookie.encode()), (b"content-type", FORM_TYPE.encode())]
    scope = {
        "type": "http", "method": "POST", "path": path, "query_string": b"", "state": {"request_id": "1"},
        "headers": headers, "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        "server": ("peeklock.test", 80), "client": ("127.0.0.1", 1), "root_path": "", "raw_path": path.encode(),
    }  # fmt: skip
    await console.application(scope, receive, send)
    assert started == [status]


async def test_the_form_that_every_client_may_send_takes_small_fields_only(console_with_keys: ConsoleServer) -> None:
    await console_with_keys.api.new_key(*Right)
    response = await post(console_with_keys, "/sign-in", b"api_key=" + b"1" * 5000)
    assert response.status_code == 400
    assert "1111" not in response.text


async def test_without_a_session_no_other_form_is_read(console_with_keys: ConsoleServer) -> None:
    await console_with_keys.api.new_key(*Right)
    sent: list[int] = []
    response = await post(console_with_keys, "/queues/orders/status", parts(console_with_keys, sent))
    assert response.status_code == 303
    assert not sent


async def parts(console: ConsoleServer, held: list[int]) -> AsyncIterator[bytes]:
    """Yield a form in parts, and note how many bytes the server has counted before each."""
    await console.get()
    yield b"csrf_token=" + csrf_token(console.http.cookies[COOKIE]).encode() + b"&name="
    for _ in range(3):
        yield b"a" * PART
        held.append(console.api.request_budget.held)


async def test_the_bytes_of_a_form_count_while_it_is_held(console: ConsoleServer) -> None:
    await console.get()
    held: list[int] = []
    await post(console, "/queues/orders/send", parts(console, held))
    assert held == sorted(held)
    assert held[-1] > FORM_COPIES * 2 * PART
    assert console.api.request_budget.held == 0


async def test_a_form_that_the_server_has_no_bytes_for_is_refused(console: ConsoleServer) -> None:
    console.api.request_budget.acquire_unchecked(console.api.request_budget.limit)
    response = await post(console, "/queues/orders/send", b"a=" + b"1" * PART)
    assert response.status_code == 503


@pytest.mark.parametrize("path", ["/queues/a%00b", "/topics/%00", "/states/%00", "/queues/-/messages", "/states/a b"])
async def test_the_store_is_not_asked_for_what_is_no_name(console: ConsoleServer, path: str) -> None:
    response = await console.get(path)
    assert response.status_code == 404
    assert "This is not the name of a" in response.text


@pytest.mark.parametrize("path", ["/topics?after=%00", "/states?after=%00", "/trail?id=%00"])
async def test_an_address_has_no_nul(console: ConsoleServer, path: str) -> None:
    assert "First page" not in await console.page(path)
    assert "\0" not in await console.page(path)


async def test_a_script_gets_every_fault_as_json(console: ConsoleServer) -> None:
    for path, status in (("/queues/orders/dead-letters/redrive", 403), ("/nothing", 404)):
        response = await console.http.post(f"/console{path}", data={}, headers={"accept": "application/json"})
        assert (response.status_code, list(response.json())) == (status, ["fault"])
