"""Behind a proxy with a path, every address in the console begins with the path, and so do its redirects and cookies."""

from __future__ import annotations

import re

import httpx
import pytest

from app.console.access import HOST_COOKIE, SECURE_COOKIE
from app.domain.access import Right
from app.domain.public_address import PublicAddress, parse_networks
from app.http.public_address import at_public_address
from app.http.request_id import RequestIdMiddleware
from tests.console.console_server import ConsoleServer, token_of

ROOT = "/apps/peeklock"
TRUSTING = PublicAddress("", parse_networks("10.0.0.0/8"))
ADDRESS = re.compile(r'(?:href|src|action|data-plots)="([^"]*)"')
PAGES = (
    "", "?find=nothing", "/queues/orders", "/queues/orders/messages", "/queues/orders/messages/1", "/queues/orders/messages/1/edit",
    "/queues/orders/messages/2/resubmit", "/queues/orders/send", "/queues/orders/settings", "/queues/orders/dead-letters", "/queues/orders/dead-letters/redrive",
    "/queues/orders/dead-letters/purge", "/queues/orders/dead-letters/restore", "/topics", "/topics/sales", "/states", "/states/customer.17",
    "/transactions", "/keys", "/trail?id=order-1", "/sign-in", "/nothing", "/new-queue", "/new-topic", "/queues/orders/delete",
    "/topics/sales/settings", "/topics/sales/delete", "/topics/sales/new-subscription", "/topics/sales/subscriptions/all",
    "/topics/sales/subscriptions/all/delete",
)  # fmt: skip


def behind_proxy(console: ConsoleServer, address: PublicAddress, **headers: str) -> httpx.AsyncClient:
    """A browser that finds the console at this address."""
    application = RequestIdMiddleware(at_public_address(console.application, address))
    transport = httpx.ASGITransport(application, client=("10.0.0.7", 1), raise_app_exceptions=False)
    origin = "https://broker.example"
    return httpx.AsyncClient(transport=transport, base_url=origin, headers={"origin": origin, **headers})


async def fill(console: ConsoleServer) -> None:
    """Give every page something to show."""
    api = console.api
    await api.send(body=1, message_id="order-1")
    await api.send(body=2)
    await api.request("PUT", "/topics/sales", {})
    await api.request("PUT", "/topics/sales/subscriptions/all", {})
    await api.send("states", body=0)
    (message,) = await api.receive("states")
    commit = {"state": {"key": "customer.17", "if_version": 0, "value": 1}}
    await api.request_json("POST", f"/queues/states/locks/{message['lock_token']}/commit", commit)
    await api.request_json("POST", "/transactions", {})
    first, second = await api.receive(max_messages=2)
    await api.settle(second, "dead-letter", reason="broken")
    await api.settle(first, "abandon")
    await console.sample()


async def test_every_address_in_a_page_begins_with_the_root_path(console: ConsoleServer) -> None:
    await fill(console)
    browser = behind_proxy(console, PublicAddress(ROOT))
    seen = set[str]()
    for path in PAGES:
        answer = await browser.get(f"{ROOT}/console{path}")
        assert answer.status_code == (404 if path == "/nothing" else 200), (path, answer.text)
        found = ADDRESS.findall(answer.text)
        assert [url for url in found if not url.startswith((f"{ROOT}/", "?", "#"))] == [], path
        assert re.findall(rf'(?<!{ROOT})(?<!value=")/console[/"?].*', answer.text) == [], path
        seen |= {url.partition("?")[0] for url in found if url.startswith(ROOT)}
    for url in sorted(seen - {f"{ROOT}/docs", f"{ROOT}/metrics"}):
        assert (await browser.get(url)).status_code in (200, 303, 405), url


@pytest.mark.parametrize("root", ["", ROOT])
async def test_a_session_below_a_path_stays_below_it(console_with_keys: ConsoleServer, root: str) -> None:
    """`__Host-` requires the path of the whole host, so the cookie below a path has another name."""
    key = await console_with_keys.api.new_key(*Right)
    browser = behind_proxy(console_with_keys, PublicAddress(root))
    asked = await browser.get(f"{root}/console/topics")
    assert asked.headers["location"] == f"{root}/console/sign-in?next_page=/console/topics"
    page = await browser.get(asked.headers["location"])
    fields = {"csrf_token": token_of(page.text), "next_page": "/console/topics", "api_key": key}
    signed_in = await browser.post(f"{root}/console/sign-in", data=fields)
    assert (signed_in.status_code, signed_in.headers["location"]) == (303, f"{root}/console/topics")
    name, path = (SECURE_COOKIE, f"{ROOT}/console") if root else (HOST_COOKIE, "/")
    cookie = signed_in.headers["set-cookie"]
    assert cookie.startswith(f"{name}=")
    assert f"Path={path}; SameSite=strict; Secure" in cookie
    topics = await browser.get(signed_in.headers["location"])
    assert topics.status_code == 200
    signed_out = await browser.post(f"{root}/console/sign-out", data={"csrf_token": token_of(topics.text)})
    assert signed_out.headers["location"] == f"{root}/console/sign-in"
    ended = [cookie for cookie in signed_out.headers.get_list("set-cookie") if "Max-Age=0" in cookie]
    assert any(cookie.startswith(f"{name}=") and f"Path={path};" in cookie for cookie in ended)
    assert (await browser.get(f"{root}/console/topics")).status_code == 303


async def test_the_scheme_of_a_trusted_proxy_makes_cookies_secure(console: ConsoleServer) -> None:
    for address, wanted in ((TRUSTING, True), (PublicAddress(ROOT), False)):
        browser = behind_proxy(console, address, **{"X-Forwarded-Proto": "https"})
        browser.base_url = "http://broker.example"
        del browser.headers["origin"]
        cookie = (await browser.get("/console")).headers["set-cookie"]
        assert ("Secure" in cookie) is wanted


async def test_the_host_of_a_trusted_proxy_is_that_of_the_console(console: ConsoleServer) -> None:
    """A proxy that sends another Host would otherwise make every page one of another site."""
    await console.api.request("PUT", "/queues/orders", {})
    seen = behind_proxy(console, TRUSTING, host="10.0.0.1:8080", **{"X-Forwarded-Host": "broker.example"})
    page = await seen.get("/console/queues/orders")
    fields = {"csrf_token": token_of(page.text), "seen": "active", "status": "disabled"}
    assert (await seen.post("/console/queues/orders/status", data=fields)).status_code == 303
    unseen = behind_proxy(console, TRUSTING, host="10.0.0.1:8080")
    assert (await unseen.get("/console/queues/orders")).status_code == 403


async def test_a_copied_command_has_the_public_address(console: ConsoleServer) -> None:
    await fill(console)
    trusting = PublicAddress(ROOT, parse_networks("10.0.0.0/8"))
    browser = behind_proxy(console, trusting, **{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "broker.example"})
    page = (await browser.get(f"{ROOT}/console/queues/orders/messages")).text
    assert f"https://broker.example{ROOT}/v1/queues/orders/messages" in page
