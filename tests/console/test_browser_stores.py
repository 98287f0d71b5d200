"""A round through the console in a real browser, on every database, and on a database that is away for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.console.browser import TIMEOUT_MS, faults_of_accessibility, open_browser, open_screen
from tests.databases import RunResources
from tests.faults.proxies import FaultyProxy
from tests.peeklock_process import PeeklockProcess

pytestmark = pytest.mark.full

Call = Callable[..., Any]


NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in ("postgresql", "mariadb")]


@pytest.mark.parametrize("server", ["sqlite", *NIGHTLY], indirect=True)
async def test_an_operator_goes_through_the_console(server: PeeklockProcess, call: Call) -> None:
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open()
        page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
        await prepare(call)
        await expect(page.locator("tr[data-row=orders]")).to_be_visible(timeout=TIMEOUT_MS)
        await change_a_setting(page)
        assert call("GET", "/queues/orders")["max_delivery_count"] == 7
        await send_and_edit(page)
        await expect(page.get_by_text("Priority").locator("xpath=following-sibling::dd[1]")).to_have_text("9")
        await redrive(page)
        assert call("GET", "/queues/orders")["counts"]["dead_lettered"] == 0
        await try_filters(page)
        await expect(page.get_by_text("1 of 2 subscriptions would copy this message.")).to_be_visible()
        await page.goto(f"{server.url}/console/states/customer.17")
        await expect(page.get_by_role("row", name="/paid false true")).to_be_visible()
        await follow(page)
        await expect(page.get_by_role("row", name="was made from it")).to_be_visible()
        ended = page.get_by_role("row", name="names it as its correlation").first
        await expect(ended).to_contain_text("completed")
        await ended.get_by_role("link").click()
        await expect(page.get_by_text("completed the message")).to_be_visible()
        await roll_back(page)
        assert call("GET", "/queues/orders")["counts"]["uncommitted"] == 0
        secret = await make_key(page)
    headers = {"authorization": f"Bearer {secret}"}
    response = await asyncio.to_thread(httpx.get, f"{server.url}/v1/queues", headers=headers)
    assert response.status_code == 200


async def prepare(call: Call) -> None:
    """Make a queue with a dead letter, a topic, a state of two versions, and an open transaction."""
    call("POST", "/queues/orders/messages", body=1, message_id="order-1/0")
    (message,) = call("POST", "/queues/orders/messages/receive")["messages"]
    call("POST", f"/queues/orders/locks/{message['lock_token']}/dead-letter", reason="bad_address")
    call("PUT", "/topics/shop")
    call("PUT", "/topics/shop/subscriptions/eu", filter="message.properties.region == 'eu'")
    call("PUT", "/topics/shop/subscriptions/us", filter="message.properties.region == 'us'")
    for number in range(2):
        call("POST", "/queues/payments/messages", body=number, correlation_id="order-1")
        (message,) = call("POST", "/queues/payments/messages/receive")["messages"]
        state = {"key": "customer.17", "if_version": number, "value": {"paid": bool(number)}}
        call("POST", f"/queues/payments/locks/{message['lock_token']}/commit", state=state)
    transaction = call("POST", "/transactions", timeout_seconds=600)["id"]
    call("POST", "/queues/orders/messages", body=2, transaction_id=transaction)


async def change_a_setting(page: Page) -> None:
    """Change a setting by its form and the preview."""
    await page.get_by_role("link", name="orders", exact=True).click()
    await page.get_by_role("link", name="Settings").click()
    await page.locator("#max_delivery_count").fill("7")
    await page.get_by_role("button", name="Preview the change").click()
    await page.get_by_role("button", name="Change the settings").click()
    await expect(page.locator("#max_delivery_count")).to_have_value("7")


async def send_and_edit(page: Page) -> None:
    """Send a message and change its priority."""
    await page.get_by_role("link", name="Send").click()
    await page.get_by_role("button", name="Send").click()
    await page.get_by_role("link", name="Edit", exact=True).click()
    await page.locator("#priority").fill("9")
    await page.get_by_role("button", name="Save").click()


async def redrive(page: Page) -> None:
    """Redrive all dead letters of the queue."""
    await page.get_by_role("link", name="Dead letters").click()
    await page.get_by_role("link", name="Redrive").first.click()
    await page.get_by_role("button", name="Redrive").click()
    await expect(page.get_by_text("Nothing is left of the plan.")).to_be_visible(timeout=TIMEOUT_MS)


async def try_filters(page: Page) -> None:
    """Test the filters of a topic."""
    await page.get_by_role("link", name="Topics").click()
    await page.get_by_role("link", name="shop", exact=True).click()
    await page.get_by_role("button", name="Test").click()


async def follow(page: Page) -> None:
    """Follow a message."""
    await page.get_by_role("link", name="Trail").click()
    await page.locator("#id").fill("order-1")
    await page.get_by_role("button", name="Follow").click()


async def roll_back(page: Page) -> None:
    """Roll back the only open transaction."""
    await page.get_by_role("link", name="Transactions").click()
    await page.locator("tbody th a").click()
    await page.get_by_role("button", name="Roll back").click()
    await expect(page.get_by_text("No transaction is open")).to_be_visible()


async def make_key(page: Page) -> str:
    """Make the first key, which may do everything, and return its secret."""
    await page.get_by_role("link", name="Keys").click()
    await page.locator("#principal").fill("reader")
    await page.get_by_role("button", name="Create the key").click()
    return await page.locator("#secret").inner_text()


async def test_while_the_database_is_away_the_console_says_so_and_then_goes_on(
    run_resources: RunResources, require_server: Callable[[str], str], tmp_path: Path
) -> None:
    with run_resources.migrated_database(require_server("postgresql")) as postgres_url:
        await with_proxy(postgres_url, run_resources.with_tables(tmp_path))


async def with_proxy(postgres_url: str, directory: Path) -> None:
    """Look at a server whose way to its database leads through a proxy."""
    address = urlsplit(postgres_url)
    async with FaultyProxy(address.port or 0).open() as proxy, open_browser() as browser:
        user = address.netloc.rpartition("@")[0]
        url = urlunsplit(address._replace(netloc=f"{user}@127.0.0.1:{proxy.port}"))
        process = await asyncio.to_thread(PeeklockProcess, directory, database_url=url, auto_create_queues=1)
        try:
            await keep_a_page_open(browser, process, proxy)
        finally:
            await asyncio.to_thread(process.end)


async def keep_a_page_open(browser: Any, process: PeeklockProcess, proxy: FaultyProxy) -> None:
    """Look at the overview while the database goes away and comes back."""
    async with httpx.AsyncClient(base_url=f"{process.url}/v1", timeout=60) as client:
        await client.post("/queues/orders/messages", json={"body": 1})
        async with open_screen(browser, process.url) as screen:
            page = await screen.open()
            await expect(page.locator("tr[data-row=orders]")).to_be_visible()
            await expect(page.locator("[data-store-away]")).to_be_hidden()
            await expect(page.locator("[data-old]")).to_be_hidden()
            await page.goto(f"{process.url}/console/queues/orders/settings")
            await page.locator("#description").fill("typed")
            plain = await browser.new_context(java_script_enabled=False)
            other = await plain.new_page()
            await other.goto(f"{process.url}/console/queues/orders/send")
            await other.locator("#body").fill('"typed without script"')
            await take_away(proxy)
            await send_in_vain(page, other)
            live = await page.context.new_page()
            await live.goto(f"{process.url}/console")
            await look_at_figures_in_memory(live)
            lost = await page.context.new_page()
            await lost.goto(f"{process.url}/console/queues/orders/messages?state=available#main")
            await expect(lost.get_by_text("opens automatically")).to_be_visible()
            proxy.is_closed = False
            await expect(lost.get_by_role("link", name="1", exact=True)).to_be_visible(timeout=TIMEOUT_MS)
            assert lost.url.endswith("/messages?state=available#main")
            await expect(live.locator("[data-old]")).to_be_hidden(timeout=TIMEOUT_MS)
            await expect(live.locator("[data-store-away]")).to_be_hidden()
            await page.get_by_role("button", name="Try again").click()
            await expect(page.get_by_text("This is what changes")).to_be_visible(timeout=TIMEOUT_MS)
            await other.get_by_role("button", name="Try again").click()
            await expect(other.get_by_text("typed without script").first).to_be_visible(timeout=TIMEOUT_MS)
            await plain.close()
            screen.faults.clear()  # the browser reports the answers 503


async def take_away(proxy: FaultyProxy) -> None:
    """Let the database answer no more."""
    proxy.is_closed = True
    proxy.cut()


async def send_in_vain(page: Page, other: Page) -> None:
    """Send a form with a script and one without while the database is away. Both keep what was typed."""
    await page.get_by_role("button", name="Preview the change").click()
    await expect(page.locator("[data-refused]")).to_contain_text(
        "Nothing that you have typed is lost.", timeout=TIMEOUT_MS
    )
    await expect(page.locator("#description")).to_have_value("typed")
    await other.get_by_role("button", name="Send").click()
    await expect(other.get_by_text("Nothing that you have typed is lost:")).to_be_visible(timeout=TIMEOUT_MS)
    await expect(other.get_by_text('"typed without script"')).to_be_visible()


async def look_at_figures_in_memory(page: Page) -> None:
    """The overview that is loaded now shows the last known figures with their age."""
    await expect(page.locator("[data-old]")).to_contain_text("Last known figures")
    await expect(page.locator("[data-store-away]")).to_be_visible()
    await expect(page.locator("tr[data-row=orders]")).to_be_visible()
    age = await page.locator("[data-age]").inner_text()
    await expect(page.locator("[data-age]")).not_to_have_text(age, timeout=TIMEOUT_MS)
    assert await faults_of_accessibility(page) == []
