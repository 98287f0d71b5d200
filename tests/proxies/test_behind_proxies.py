"""Behind nginx and HAProxy with TLS, HTTP/2 and a path, clients, links, pages and streams find the server.

The proxies are configured as docs/guides/proxy.md shows, with its time limits of 60 seconds.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest
from peeklock_client import Client
from playwright.async_api import expect

from tests.console.browser import TIMEOUT_MS, Screen, open_browser
from tests.peeklock_process import PROGRAM, environment
from tests.proxies.conftest import Published
from tests.proxies.proxy_servers import ROOT

LONGEST_WAIT_SECONDS = 50
LONGER_THAN_THE_LIMIT_SECONDS = 70


@pytest.fixture
async def http(published: Published, certificate: Path) -> Any:
    """A client of the proxy."""
    trusted = ssl.create_default_context(cafile=str(certificate))
    headers = {"Authorization": f"Bearer {published.key}"}
    async with httpx.AsyncClient(verify=trusted, headers=headers, timeout=120) as client:
        yield client


def test_an_answer_over_http_2_names_the_public_path(published: Published, certificate: Path) -> None:
    typed = ["curl", "-s", "-i", "--http2", "--cacert", certificate, "-H", f"Authorization: Bearer {published.key}"]
    put = [*typed, "-X", "PUT", f"{published.url}/v1/queues/curl", "-H", "Content-Type: application/json", "-d", "{}"]
    head = subprocess.run(put, capture_output=True, text=True, check=True).stdout.lower()
    assert head.startswith("http/2 201")
    assert f"location: {ROOT}/v1/queues/curl" in head


async def test_every_link_of_an_answer_leads_on(published: Published, http: httpx.AsyncClient) -> None:
    url = published.url
    for name in ("links.a", "links.b"):
        created = await http.put(f"{url}/v1/queues/{name}", json={})
        assert (await http.get(urljoin(url, created.headers["location"]))).json()["name"] == name
    page = await http.get(f"{url}/v1/queues?limit=1")
    assert (await http.get(urljoin(url, page.links["next"]["url"]))).json()["items"]
    index = (await http.get(f"{url}/")).json()
    for path in index["links"].values():
        assert (await http.get(urljoin(url, path))).status_code == 200, path
    document = (await http.get(f"{url}/openapi.json")).json()
    assert document["servers"][0]["url"] == ROOT
    guide = await http.get(f"{url}/docs/guide")
    home = await http.get(urljoin(str(guide.url), guide.headers["location"]))
    assert (await http.get(urljoin(str(home.url), "start.html"))).text == "The guide begins."


async def test_a_viewer_of_the_document_loads_its_files(published: Published, http: httpx.AsyncClient) -> None:
    page = await http.get(f"{published.url}/docs")
    files = re.findall(r'(?:href|src)="([^"]*)"', page.text)
    assert files
    # The link to the console leads to its sign-in page.
    found = [await http.get(urljoin(str(page.url), file), follow_redirects=True) for file in files]
    assert {answer.status_code for answer in found} == {200}


async def test_the_client_and_the_command_line_keep_the_path(
    published: Published, http: httpx.AsyncClient, certificate: Path, tmp_path: Path
) -> None:
    async with Client(published.url, api_key=published.key, http=http) as client:
        queue = client.queue("clients")
        await queue.create()
        await queue.send({"order": 17})
        (received,) = await queue.receive()
        async with received:
            assert received.message.body == {"order": 17}
    settings = environment(url=published.url, api_key=published.key) | {"SSL_CERT_FILE": str(certificate)}
    command = [PROGRAM, "queue", "show", "clients", "--json"]
    shown = await asyncio.create_subprocess_exec(*command, env=settings, cwd=tmp_path, stdout=subprocess.PIPE)
    assert json.loads((await shown.communicate())[0])["name"] == "clients"


async def test_a_waiting_receive_is_answered_by_the_send(published: Published, http: httpx.AsyncClient) -> None:
    queue = f"{published.url}/v1/queues/waiting"
    await http.put(queue, json={})
    receive = asyncio.create_task(http.post(f"{queue}/messages/receive", json={"wait_seconds": LONGEST_WAIT_SECONDS}))
    while "\npeeklock_waiting_receivers 1.0" not in (await http.get(f"{published.server.url}/metrics")).text:
        pass
    await http.post(f"{queue}/messages", json={"body": 1})
    assert [message["body"] for message in (await receive).json()["messages"]] == [1]


@pytest.mark.nightly
async def test_the_longest_wait_ends_before_the_limits_of_the_proxy(
    published: Published, http: httpx.AsyncClient
) -> None:
    await http.put(f"{published.url}/v1/queues/idle", json={})
    receive = {"wait_seconds": LONGEST_WAIT_SECONDS}
    answer = await http.post(f"{published.url}/v1/queues/idle/messages/receive", json=receive)
    assert (answer.status_code, answer.json()["messages"]) == (200, [])


async def test_a_person_signs_in_and_sees_the_figures_change(published: Published, http: httpx.AsyncClient) -> None:
    await http.put(f"{published.url}/v1/queues/figures", json={})
    async with open_browser() as browser:
        context = await browser.new_context(ignore_https_errors=True)
        screen = Screen(await context.new_page(), published.url)
        page = await screen.open("/queues/figures")
        await page.fill("#api_key", published.key)
        await page.click("button.primary")
        await page.wait_for_url(f"{published.url}/console/queues/figures")
        cookies = {cookie.get("name"): cookie for cookie in await context.cookies()}
        session = cookies["__Secure-peeklock_session"]
        assert (session.get("path"), session.get("secure")) == (f"{ROOT}/console", True)
        await page.click("a.brand")
        await page.wait_for_url(f"{published.url}/console")
        row = page.locator("tr[data-row=figures] td.number").nth(3)
        await expect(row).to_have_text("0")
        await http.post(f"{published.url}/v1/queues/figures/messages", json={"body": 1})
        await expect(row).to_have_text("1", timeout=TIMEOUT_MS)
        await page.click("tr[data-row=figures] a")
        await page.wait_for_url(f"{published.url}/console/queues/figures")
        await page.click("main a:text-is('Send')")
        await page.fill("textarea[name=body]", '"typed"')
        await page.click("main button.primary")
        await page.wait_for_url(re.compile(f"{ROOT}/console/queues/figures/messages"))
        await page.click("text=Sign out")
        await page.wait_for_url(f"{published.url}/console/sign-in")
        assert screen.faults == []


@pytest.mark.nightly
async def test_a_page_stays_live_beyond_the_limits_of_the_proxy(published: Published, http: httpx.AsyncClient) -> None:
    await http.put(f"{published.url}/v1/queues/quiet", json={})
    async with open_browser() as browser:
        context = await browser.new_context(ignore_https_errors=True)
        screen = Screen(await context.new_page(), published.url)
        page = await screen.open()
        await page.fill("#api_key", published.key)
        await page.click("button.primary")
        await page.wait_for_url(f"{published.url}/console")
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        await page.reload()
        await asyncio.sleep(LONGER_THAN_THE_LIMIT_SECONDS)
        await http.post(f"{published.url}/v1/queues/quiet/messages", json={"body": 1})
        await expect(page.locator("tr[data-row=quiet] td.number").nth(3)).to_have_text("1", timeout=TIMEOUT_MS)
        assert len([url for url in requests if "/console/live" in url]) == 1
        assert screen.faults == []
