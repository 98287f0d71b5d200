"""What people have typed comes back with every refusal that no form of a page shows, with a button that tries again."""

import html
import re
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.routing import Route
from structlog.testing import capture_logs

from app.broker.access.sessions import _CACHE_SECONDS
from app.console import application
from app.console.access import COOKIE, csrf_token
from app.console.application import DOUBT
from app.console.forms import FORM_TYPE, MAX_FIELD_BYTES
from app.domain.access import Right
from app.domain.refusals import StoreUnavailable
from app.http.asgi import Event, Scope
from app.http.request_id import RequestIdMiddleware
from tests.brokers import ChangedStore
from tests.console.console_server import ConsoleServer, token_of

AWAY = "The database cannot be reached."
TYPED = "typed </textarea><script>"
SIGN_IN_PATHS = {"/console/sign-in", "/console/sign-out"}
NAMES = {
    "queue": "orders",
    "sequence_number": "1",
    "topic": "shop",
    "subscription": "eu",
    "key": "state.1",
    "key_id": "a1",
    "transaction_id": "t",
    "move_id": "m",
}
PATHS = sorted(
    route.path.format(**NAMES)
    for router in application.ROUTERS
    for route in router.routes
    if isinstance(route, Route) and "POST" in (route.methods or ()) and route.path not in SIGN_IN_PATHS
)
"""The addresses of all forms."""


async def away(*_: object) -> None:
    """The database does not answer."""
    raise StoreUnavailable(AWAY)


async def sign_in(console: ConsoleServer) -> str:
    """Sign in with a key that may do everything, and return the token for forms."""
    await console.sign_in(await console.api.new_key(*Right))
    return token_of(await console.page())


async def take_the_database_away(console: ConsoleServer) -> None:
    """Let the console ask the database for the session again, and get no answer."""
    await console.api.clock.advance(_CACHE_SECONDS + 1)
    console.take_sessions_away(key_of=away)


async def send(console: ConsoleServer, path: str, **fields: str) -> httpx.Response:
    """Send a form."""
    return await console.http.post(path, data=fields)


async def send_half(console: ConsoleServer, path: str, body: bytes) -> None:
    """Send the beginning of a form, and close the connection. An error of the application is raised here."""
    events: list[Event] = [{"type": "http.request", "body": body, "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Event:
        return events.pop(0)

    async def ignore(_: Event) -> None:
        """The client reads no answer."""

    headers = {"cookie": f"{COOKIE}={console.http.cookies[COOKIE]}", "content-type": FORM_TYPE}
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    await RequestIdMiddleware(console.application)(scope, receive, ignore)


def kept(page: str) -> dict[str, str]:
    """The fields of the form on the page of a refusal."""
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)
    return {name: html.unescape(value) for name, value in fields}


def test_the_console_has_forms() -> None:
    assert "/console/queues/orders/settings" in PATHS
    assert len(PATHS) >= 13


@pytest.mark.parametrize("path", PATHS)
async def test_every_form_comes_back_while_the_database_is_away(console_with_keys: ConsoleServer, path: str) -> None:
    token = await sign_in(console_with_keys)
    await take_the_database_away(console_with_keys)
    response = await send(console_with_keys, path, csrf_token=token, note=TYPED, etag="e")
    assert response.status_code == 503
    assert AWAY in response.text
    assert f'<form class="sheet" method="post" action="{path}">' in response.text
    assert kept(response.text) == {"csrf_token": token, "note": TYPED, "etag": "e"}
    assert f'<dd class="wrap">{html.escape(TYPED)}</dd>' in response.text
    assert "<dt>Etag</dt>" not in response.text
    assert "Try again" in response.text


async def test_what_comes_back_can_be_sent_again(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    key = {"authorization": f"Bearer {await api.new_key(*Right)}"}
    await api.request("PUT", "/queues/orders", {}, headers=key)
    token = await sign_in(console_with_keys)
    sessions = console_with_keys.context
    await take_the_database_away(console_with_keys)
    path = "/console/queues/orders/send"
    refused = await send(console_with_keys, path, csrf_token=token, body='{"a": "\\r\\n"}', idempotency_key="1")
    console_with_keys.application.state.context = sessions
    assert (await send(console_with_keys, path, **kept(refused.text))).status_code == 303
    message = await api.request_json("GET", "/queues/orders/messages/1", headers=key)
    assert message["body"] == {"a": "\r\n"}


async def test_every_choice_of_a_field_comes_back(console_with_keys: ConsoleServer) -> None:
    token = await sign_in(console_with_keys)
    await take_the_database_away(console_with_keys)
    fields = {"csrf_token": token, "rights": ["send", "browse"]}
    refused = await console_with_keys.http.post("/console/keys", data=fields)
    assert re.findall(r'name="rights" value="(\w+)"', refused.text) == ["send", "browse"]


async def test_the_page_of_a_refused_form_does_not_send_it_again_on_its_own(console_with_keys: ConsoleServer) -> None:
    token = await sign_in(console_with_keys)
    await take_the_database_away(console_with_keys)
    assert "data-retry" in (await console_with_keys.get("/queues/orders")).text
    refused = await send(console_with_keys, "/console/queues/orders/send", csrf_token=token, body="1")
    assert "data-retry" not in refused.text


async def test_a_form_that_is_no_form_of_this_visitor_does_not_come_back(console_with_keys: ConsoleServer) -> None:
    token = await sign_in(console_with_keys)
    await take_the_database_away(console_with_keys)
    path = "/console/queues/orders/send"
    assert TYPED not in html.unescape((await send(console_with_keys, path, csrf_token="1", note=TYPED)).text)
    async with console_with_keys.browser() as stranger:
        response = await stranger.post(path, data={"csrf_token": token, "note": TYPED})
    assert response.status_code in (303, 403)
    assert TYPED not in html.unescape(response.text)


async def test_an_api_key_never_comes_back(console_with_keys: ConsoleServer) -> None:
    token = await sign_in(console_with_keys)
    await take_the_database_away(console_with_keys)
    response = await send(console_with_keys, "/console/queues/orders/send", csrf_token=token, api_key="pk_secret")
    assert "pk_secret" not in response.text


async def test_a_refusal_by_another_status_comes_back_too(console: ConsoleServer) -> None:
    await console.get()
    response = await console.post("/queues/orders/send", body=TYPED)
    assert response.status_code == 404
    assert kept(response.text)["body"] == TYPED


async def test_a_form_that_would_be_many_times_as_large_in_html_does_not_come_back(console: ConsoleServer) -> None:
    await console.get()
    response = await console.post("/nothing", a="'" * (MAX_FIELD_BYTES // 4), b='"' * (MAX_FIELD_BYTES // 4))
    assert response.status_code == 404
    assert len(response.content) < 10_000


async def test_a_long_field_comes_back_once(console: ConsoleServer) -> None:
    await console.get()
    typed = "x" * 500_000
    response = await console.post("/nothing", note=typed)
    assert kept(response.text)["note"] == typed
    assert len(response.content) < len(typed) + 10_000


async def test_a_browser_that_goes_away_while_it_sends_a_form_is_no_failure(console: ConsoleServer) -> None:
    await console.get()
    token = csrf_token(console.http.cookies[COOKIE])
    for path in ("/console/nothing", "/console/queues/orders/send"):
        with capture_logs() as logged:
            await send_half(console, path, f"csrf_token={token}&note=".encode())
        assert logged == []


async def test_a_script_gets_the_sentence_and_keeps_its_form(console_with_keys: ConsoleServer) -> None:
    token = await sign_in(console_with_keys)
    await take_the_database_away(console_with_keys)
    for accepted in ("application/json", "application/json, text/html"):
        response = await console_with_keys.http.post(
            "/console/queues/orders/settings", data={"csrf_token": token}, headers={"accept": accepted}
        )
        assert (response.status_code, response.json()) == (503, {"fault": AWAY})


@pytest.mark.parametrize(
    ("text", "is_in_doubt"),
    [
        ("The database does not answer.", True),
        ("Too many concurrent changes; this request changed nothing.", False),
    ],
)
async def test_a_form_that_may_have_taken_effect_says_so(console: ConsoleServer, text: str, is_in_doubt: bool) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable(text)

    await console.get()
    broker = console.context.broker
    store: Any = ChangedStore(broker.store, keys=ChangedStore(broker.store.keys, add=fail))
    console.application.state.context = replace(console.context, broker=replace(broker, store=store))
    refused = await console.post("/keys", principal="shop", rights="manage", patterns="*")
    assert refused.status_code == 503
    assert text in refused.text
    assert (DOUBT in refused.text) == is_in_doubt
    assert DOUBT not in (await console.get("/none")).text
