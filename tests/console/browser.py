"""A real browser for the tests of the console: the Chromium of this machine."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

AXE = Path(sys.prefix) / "node/node_modules/axe-core/axe.min.js"
PROGRAM = "chromium"
ARGUMENTS = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
TIMEOUT_MS = 60_000


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """A browser without a window."""
    program = shutil.which(PROGRAM)
    assert program, f"{PROGRAM} is not installed; `python3 dev.py test` installs it"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=ARGUMENTS, timeout=TIMEOUT_MS)
        try:
            yield browser
        finally:
            await browser.close()


async def faults_of_accessibility(page: Page) -> list[Any]:
    """Return what axe finds wrong with a page: the rules, and the elements that break them."""
    await page.evaluate(AXE.read_text())
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [(fault["id"], [node["target"] for node in fault["nodes"]]) for fault in found["violations"]]


class Screen:
    """A page in the browser, with what has gone wrong in it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.faults: list[str] = []
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda message: message.type == "error" and self.faults.append(message.text))

    async def open(self, path: str = "") -> Page:
        """Load a page of the console."""
        await self.page.goto(f"{self.url}/console{path}")
        return self.page


@asynccontextmanager
async def open_screen(
    browser: Browser, url: str, *, width: int = 1280, height: int = 800, theme: str = "light"
) -> AsyncIterator[Screen]:
    """A page of this size in this theme, with cookies of its own. Faults in it fail the test."""
    size = {"width": width, "height": height}
    context = await browser.new_context(viewport=size, color_scheme=theme)  # type: ignore[arg-type]
    screen = Screen(await context.new_page(), url)
    yield screen
    await context.close()
    assert screen.faults == []
