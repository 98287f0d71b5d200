"""Pages need a session where the server needs a key, and what a key may not do is refused. Foreign forms are refused."""

import asyncio
import re
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi.routing import APIRoute

from app.broker.access.keys import CACHE_SECONDS
from app.console.access import COOKIE, CSRF_HEADER, HOST_COOKIE
from app.console.application import ROUTERS
from app.console.forms import FORM_TYPE
from app.console.signing_in import local_path
from app.domain.access import Right
from tests.console.console_server import ORIGIN, ConsoleServer, token_of
from tests.virtual_clock import run_ready_tasks

OPEN_PAGES = {"/console/", "/console/sign-in", "/console/assets/{version}/{name:path}"}
"""The pages that need no session."""


def location(response: httpx.Response) -> str:
    """Return where a response sends the browser."""
    assert response.status_code == 303, response.text
    return response.headers["location"]


async def test_a_page_asks_for_a_session_and_is_shown_after_the_sign_in(console_with_keys: ConsoleServer) -> None:
    key = await console_with_keys.api.new_key(*Right)
    asked = await console_with_keys.get("?sort=name")
    assert location(asked) == "/console/sign-in?next_page=/console%3Fsort%3Dname"
    form = await console_with_keys.http.get(location(asked))
    fields = {"csrf_token": token_of(form.text), "api_key": f" {key} ", "next_page": "/console?sort=name"}
    signed_in = await console_with_keys.http.post("/console/sign-in", data=fields)
    assert location(signed_in) == "/console?sort=name"
    assert "Sign out" in await console_with_keys.page()


async def test_every_page_needs_a_session(console_with_keys: ConsoleServer) -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    assert {route.path for route in routes} > OPEN_PAGES
    for route in routes:
        if route.path in OPEN_PAGES:
            continue
        path = re.sub(r"\{\w+\}", "1", route.path)
        for method in route.methods:
            response = await console_with_keys.browser().request(method, path)
            assert location(response).startswith("/console/sign-in"), (method, path)


@pytest.mark.parametrize("api_key", ["", "pk_wrong", "ü" * 300])
async def test_a_wrong_key_is_not_accepted(console_with_keys: ConsoleServer, api_key: str) -> None:
    await console_with_keys.api.new_key(*Right)
    response = await console_with_keys.sign_in(api_key)
    assert response.status_code == 401
    assert "This API key is not accepted" in response.text
    assert location(await console_with_keys.get()) == "/console/sign-in?next_page=/console"


async def test_no_form_ignores_a_query(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {})
    await console.api.send(body=1)
    paths = {
        re.sub(r"\{\w+\}", "orders", route.path)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and "POST" in route.methods
    }
    for path in paths:
        response = await console.post(f"{path.removeprefix('/console')}?dry_run=true", states="available")
        assert response.status_code == 422, path
        assert "no query" in response.text
    assert await console.api.counts() == {"available": 1}


async def test_the_cookie_is_no_key_and_no_script_or_other_site_gets_it(console_with_keys: ConsoleServer) -> None:
    key = await console_with_keys.api.new_key(*Right)
    cookie = (await console_with_keys.sign_in(key)).headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert key not in cookie
    assert "HttpOnly; Max-Age=43200; Path=/console; SameSite=strict" in cookie


async def test_the_cookie_of_https_is_sent_over_https_alone(console_with_keys: ConsoleServer) -> None:
    key = await console_with_keys.api.new_key(*Right)
    page = (await console_with_keys.get("/sign-in")).text
    response = await console_with_keys.http.post(
        "/console/sign-in",
        data={"csrf_token": token_of(page), "api_key": key},
        headers={"origin": "https://peeklock.test", "host": "peeklock.test"},
    )
    assert response.headers["set-cookie"].startswith(f"{HOST_COOKIE}=")
    assert "Path=/; SameSite=strict; Secure" in response.headers["set-cookie"]


async def test_a_session_over_https_is_recognised_by_its_cookie(console_with_keys: ConsoleServer) -> None:
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*Right))
    secret = console_with_keys.http.cookies[COOKIE]
    shown = await console_with_keys.browser().get("/console", headers={"cookie": f"{HOST_COOKIE}={secret}"})
    assert shown.status_code == 200
    # Another host may have set the cookie of HTTP for this one.
    cookies = f"{COOKIE}=of-another-host; {HOST_COOKIE}={secret}"
    assert (await console_with_keys.browser().get("/console", headers={"cookie": cookies})).status_code == 200


async def test_no_other_site_signs_a_browser_in(console_with_keys: ConsoleServer) -> None:
    key = await console_with_keys.api.new_key(*Right)
    token = token_of((await console_with_keys.get("/sign-in")).text)
    for fields, origin in (({}, ORIGIN), ({"csrf_token": token}, "https://evil.test")):
        response = await console_with_keys.http.post(
            "/console/sign-in", data={"api_key": key, **fields}, headers={"origin": origin}
        )
        assert (response.status_code, "set-cookie" in response.headers) == (403, False)


async def test_a_session_ends_at_the_sign_out_in_the_server_too(console_with_keys: ConsoleServer) -> None:
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*Right))
    stolen = console_with_keys.http.cookies[COOKIE]
    assert location(await console_with_keys.post("/sign-out")) == "/console/sign-in"
    assert COOKIE not in console_with_keys.http.cookies
    again = await console_with_keys.browser().get("/console", headers={"cookie": f"{COOKIE}={stolen}"})
    assert location(again).startswith("/console/sign-in")


async def test_a_session_ends_with_its_key(console_with_keys: ConsoleServer) -> None:
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*Right))
    (key,) = await console_with_keys.api.broker.store.keys.list_all()
    await console_with_keys.api.broker.store.keys.revoke(key.id)
    await console_with_keys.api.clock.advance(6)
    assert location(await console_with_keys.get()).startswith("/console/sign-in")


@pytest.mark.parametrize("by_script", [False, True], ids=["form", "script"])
async def test_a_form_that_arrives_after_the_session_has_ended_does_nothing(
    console_with_keys: ConsoleServer, by_script: bool
) -> None:
    """A form may arrive slowly. A script sends the token of its page in a header, ahead of the form."""
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*Right))
    token = token_of(await console_with_keys.page())
    may_arrive = asyncio.Event()

    async def form() -> AsyncIterator[bytes]:
        yield f"csrf_token={token}&principal=other&".encode()
        await may_arrive.wait()
        yield b"rights=manage&patterns=*"

    headers = {"content-type": FORM_TYPE} | ({CSRF_HEADER: token} if by_script else {})
    making = asyncio.create_task(console_with_keys.http.post("/console/keys", content=form(), headers=headers))
    await run_ready_tasks()
    keys = console_with_keys.api.broker.store.keys
    (key,) = await keys.list_all()
    await keys.revoke(key.id)
    await console_with_keys.api.clock.advance(CACHE_SECONDS)
    may_arrive.set()
    assert location(await making) == "/console/sign-in"
    assert len(await keys.list_all()) == 1


async def test_a_session_ends_after_twelve_hours(console_with_keys: ConsoleServer) -> None:
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*Right))
    await console_with_keys.api.clock.advance(12 * 3600 - 10)
    assert (await console_with_keys.get()).status_code == 200
    await console_with_keys.api.clock.advance(11)
    assert location(await console_with_keys.get()).startswith("/console/sign-in")


async def test_the_sign_in_page_does_not_say_that_no_key_is_needed(console_with_keys: ConsoleServer) -> None:
    assert "needs no API key" not in (await console_with_keys.get("/sign-in")).text


async def test_the_page_with_the_first_key_does_not_say_that_no_key_is_needed(console: ConsoleServer) -> None:
    assert "needs no API key" in await console.page("/keys")
    made = await console.post("/keys", "/keys", principal="admin", rights=["manage"], patterns="*")
    assert "From now on this server needs a key" in made.text
    assert "needs no API key" not in made.text


@pytest.mark.parametrize(
    "target",
    [
        "//evil.test",
        "//[",
        "http://[",
        "https://evil.test/console",
        "/consoles",
        "/console\\evil",
        "/console/\\evil",
        "javascript:1",
        "/console/\n",
        " /console",
        "/console/../docs",
        "/console/queues/%2E./../v1?x",
        "/console/.",
    ],
)
def test_a_sign_in_leads_to_pages_of_the_console_alone(target: str) -> None:
    assert local_path(target) == "/console"


async def test_a_form_without_the_token_of_a_page_is_refused(console_with_keys: ConsoleServer) -> None:
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*Right))
    token = token_of((await console_with_keys.get()).text)
    for fields in ({}, {"csrf_token": "wrong"}, {"csrf_token": token[:-1]}):
        response = await console_with_keys.http.post("/console/sign-out", data=fields)
        assert response.status_code == 403, fields
    assert (await console_with_keys.get()).status_code == 200


async def test_a_form_of_another_site_is_refused_even_with_the_token(console_with_keys: ConsoleServer) -> None:
    await console_with_keys.sign_in(await console_with_keys.api.new_key(*Right))
    token = token_of((await console_with_keys.get()).text)
    for origin in ("https://evil.test", "null", "http://peeklock.test.evil.test"):
        fields, headers = {"csrf_token": token}, {"origin": origin}
        response = await console_with_keys.http.post("/console/sign-out", data=fields, headers=headers)
        assert response.status_code == 403, origin


async def test_without_keys_pages_of_other_sites_are_kept_out(console: ConsoleServer) -> None:
    assert (await console.get()).status_code == 200
    for headers in ({"origin": "https://evil.test"}, {"sec-fetch-site": "cross-site"}):
        assert (await console.get(headers=headers)).status_code == 403


async def test_no_page_may_be_framed_run_foreign_scripts_or_be_stored(console: ConsoleServer) -> None:
    for path in ("", "/sign-in", "/nothing"):
        headers = (await console.get(path)).headers
        policy = dict(directive.split(" ", 1) for directive in headers["content-security-policy"].split("; "))
        assert policy.pop("default-src") == policy.pop("frame-ancestors") == policy.pop("base-uri") == "'none'"
        assert set(policy.values()) == {"'self'"}
        assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-store")
        assert headers["referrer-policy"] == "same-origin"


async def test_a_key_sees_the_queues_that_it_may_browse(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    for queue in ("orders.eu", "orders.us", "payments"):
        await api.request("PUT", f"/queues/{queue}", {}, headers=everything)
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, patterns=("orders.*",)))
    page = await console_with_keys.page()
    assert ("orders.eu" in page, "orders.us" in page, "payments" in page) == (True, True, False)
