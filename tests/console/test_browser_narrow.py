"""The console on a narrow screen in a real browser: no text is cut off, and a menu leads to the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import expect

from tests.console.browser import open_browser, open_screen
from tests.peeklock_process import PeeklockProcess

pytestmark = pytest.mark.full

NARROW_PATHS = (
    "/queues/orders", "/queues/orders/moves", "/queues/orders/settings", "/queues/orders/delete", "/new-queue", "/topics", "/topics/events",
    "/topics/events/settings", "/topics/events/new-subscription", "/topics/events/subscriptions/some", "/keys",
)  # fmt: skip
CUT_OFF = """() => [...document.querySelectorAll("main *, header *")]
  .filter((element) => element.checkVisibility() && !element.closest("svg, .hidden, .u-wrap, input, select"))
  .filter((element) => element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible")
  .map((element) => `${element.tagName}.${element.className}`)"""
"""The elements whose content is wider than they are, and is cut off or scrolled."""

CUT_OFF_PLACEHOLDERS = """() => [...document.querySelectorAll("input[placeholder]")].filter((input) => {
  const style = getComputedStyle(input), measure = document.createElement("canvas").getContext("2d");
  measure.font = style.font;
  const room = input.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return input.checkVisibility() && measure.measureText(input.placeholder).width > room;
}).map((input) => input.placeholder)"""
"""The texts of empty fields that are wider than their field."""


async def test_no_text_is_cut_off_on_a_narrow_screen(server: PeeklockProcess, call: Callable[..., Any]) -> None:
    """A table may be wider than its box only where it is scrolled, and no page of this part of the console has such a table."""
    call("PUT", "/queues/orders", history=True)
    call("POST", "/queues/orders/messages", body=1)
    call("POST", "/queues/orders/messages/receive", receiver_id="worker-17")
    call("PUT", "/topics/events")
    call("PUT", "/topics/events/subscriptions/some", filter="message.properties.region == 'eu'")
    async with open_browser() as browser, open_screen(browser, server.url, width=390) as screen:
        for path in NARROW_PATHS:
            page = await screen.open(path)
            assert await page.evaluate(CUT_OFF) == [], path
        await screen.open("/keys")
        await page.locator("#principal").fill("admin")
        await page.get_by_role("button", name="Create the key").click()
        secret = await page.locator("#secret").inner_text()
        await screen.open("/sign-in")
        await page.locator("#api_key").fill(secret)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        assert await page.locator("header").evaluate("header => header.clientHeight") < 60
        await screen.open("/new-queue")
        buttons = await page.locator(".pages :is(button, .button)").evaluate_all(
            "all => all.map((one) => one.clientHeight)"
        )
        assert (len(buttons), len(set(buttons))) == (3, 1)


async def test_no_sample_of_an_empty_page_is_cut_off_on_a_narrow_screen(server: PeeklockProcess) -> None:
    async with open_browser() as browser, open_screen(browser, server.url, width=390) as screen:
        for path in ("", "/topics", "/states"):
            page = await screen.open(path)
            assert await page.evaluate(CUT_OFF) == [], path


async def test_no_text_of_an_empty_field_is_cut_off_on_a_narrow_screen(
    server: PeeklockProcess, call: Callable[..., Any]
) -> None:
    call("PUT", "/queues/orders")
    async with open_browser() as browser, open_screen(browser, server.url, width=390) as screen:
        for path in (
            "",
            "/queues/orders/messages",
            "/queues/orders/dead-letters",
            "/queues/orders/settings",
            "/new-queue",
        ):
            page = await screen.open(path)
            assert await page.evaluate(CUT_OFF_PLACEHOLDERS) == [], path


async def test_a_page_reserves_no_place_for_rows_that_it_does_not_have(
    server: PeeklockProcess, call: Callable[..., Any]
) -> None:
    call("PUT", "/queues/orders")
    async with open_browser() as browser, open_screen(browser, server.url, width=390) as screen:
        page = await screen.open()
        height = await page.evaluate("document.documentElement.scrollHeight")
        await page.locator("tr[data-row=orders]").scroll_into_view_if_needed()
        await expect(page.get_by_role("link", name="orders")).to_be_in_viewport()
        assert await page.evaluate("document.documentElement.scrollHeight") == height


async def test_the_navigation_opens_without_scripts(server: PeeklockProcess) -> None:
    async with open_browser() as browser:
        context = await browser.new_context(viewport={"width": 390, "height": 844}, java_script_enabled=False)
        page = await context.new_page()
        await page.goto(f"{server.url}/console/topics")
        menu, link = page.get_by_role("button", name="Menu"), page.get_by_role("link", name="Transactions")
        await expect(link).to_be_hidden()
        await menu.click()
        await expect(link).to_be_in_viewport(ratio=1)
        await page.keyboard.press("Escape")
        await expect(link).to_be_hidden()
        await menu.click()
        await link.click()
        await page.wait_for_url("**/console/transactions")
        await context.close()


async def test_a_wide_screen_needs_no_menu(server: PeeklockProcess) -> None:
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open("/topics")
        await expect(page.get_by_role("button", name="Menu")).to_be_hidden()
        await expect(page.get_by_role("link", name="Transactions")).to_be_in_viewport(ratio=1)
