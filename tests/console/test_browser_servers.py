"""The list of servers in a real browser: it changes while the page is open, and its rows stay open."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from app import __version__
from app.broker.ports.server_directory import ListedServer
from app.domain.instant import SECOND
from tests.console.browser import TIMEOUT_MS, faults_of_accessibility, open_browser, open_screen
from tests.console.console_server import ConsoleServer
from tests.console.shared_directory import Directory, other
from tests.console.test_screenshots import serve
from tests.console.test_servers import ALONE_NOW

pytestmark = pytest.mark.full


async def test_the_list_of_servers_is_live(console: ConsoleServer, directory: Directory) -> None:
    await console.api.send(body=1)
    directory.list_servers(ListedServer(console.server, 0))
    await console.sample()
    async with serve(console) as url, open_browser() as browser, open_screen(browser, url, width=375) as screen:
        page = await screen.open()
        rows = page.locator("tr[data-server]")
        await page.get_by_text(f"1 server, version {__version__}").click()
        await expect(rows).to_contain_text("this server")
        directory.list_servers(ListedServer(console.server, 0), other(console, "web-2", version="0.1", age=12 * SECOND))
        await console.sample()
        await expect(rows).to_have_count(2, timeout=TIMEOUT_MS)
        await expect(page.get_by_text("2 versions, 1 without a report")).to_be_visible()
        await expect(rows.nth(1)).to_contain_text("This version is not that of the others. No report for 12 s.")
        await expect(rows.nth(1)).not_to_contain_text("UTC")
        await expect(rows.nth(0).get_by_text("this server")).to_be_visible()
        await expect(rows.nth(1).get_by_text("this server")).to_be_hidden()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 375
        assert await faults_of_accessibility(page) == []
        directory.answer = None
        await console.sample()
        await expect(page.get_by_text(ALONE_NOW)).to_be_visible(timeout=TIMEOUT_MS)
        await expect(rows.first).to_be_hidden()
