"""The consumers of a queue in a real browser: they change while the page is open, and fit into every width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import expect

from tests.console.browser import TIMEOUT_MS, faults_of_accessibility, open_browser, open_screen
from tests.console.test_browser import HOSTILE
from tests.console.test_browser_narrow import CUT_OFF
from tests.peeklock_process import PeeklockProcess

pytestmark = pytest.mark.full

TARGET = "https://shop.example/" + "a-long-path-of-a-target-" * 10


async def test_consumers_change_while_the_page_is_open(server: PeeklockProcess, call: Callable[..., Any]) -> None:
    call("PUT", "/queues/orders")
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open("/queues/orders")
        row = page.locator("[data-consumers] tbody tr")
        await expect(page.get_by_text("No consumer reports itself")).to_be_visible()
        call("PUT", "/queues/orders/consumers/web-1", state="paused", reason=HOSTILE, ttl_seconds=300)
        await expect(row.locator("[data-state]")).to_have_text("paused", timeout=TIMEOUT_MS)
        await expect(row.locator(".why")).to_have_text(HOSTILE)
        await expect(page.locator("[data-attention-reason]")).to_contain_text("The consumer web-1 is paused")
        call("PUT", "/queues/orders/consumers/web-1", state="receiving", ttl_seconds=300)
        await expect(row.locator("[data-state]")).to_have_text("receiving", timeout=TIMEOUT_MS)
        await page.request.delete(f"{server.url}/v1/queues/orders/consumers/web-1")
        await expect(row).to_have_count(0, timeout=TIMEOUT_MS)
        await expect(page.get_by_text("No consumer reports itself")).to_be_visible()


@pytest.mark.parametrize("width", [390, 1440])
async def test_long_texts_of_consumers_are_not_cut_off(
    server: PeeklockProcess, call: Callable[..., Any], width: int
) -> None:
    call("PUT", "/queues/orders")
    call("PUT", "/queues/orders/consumers/web-1", state="paused", reason="x" * 500, target=TARGET, ttl_seconds=300)
    async with open_browser() as browser, open_screen(browser, server.url, width=width) as screen:
        for path in ("/queues/orders", ""):
            page = await screen.open(path)
            await expect(page.get_by_text(TARGET).first).to_be_visible(timeout=TIMEOUT_MS)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            assert await page.evaluate(CUT_OFF) == []
            assert await faults_of_accessibility(page) == []
