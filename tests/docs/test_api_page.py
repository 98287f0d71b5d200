"""The page `/docs` in a browser: it has samples of each operation, reads Markdown, and leads to the other pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.console.browser import faults_of_accessibility, open_browser, open_screen
from tests.peeklock_process import PeeklockProcess

pytestmark = pytest.mark.full


async def test_an_operation_has_samples_for_this_server_in_the_chosen_language(
    serve: Callable[..., PeeklockProcess],
) -> None:
    service = serve()
    async with open_browser() as browser, open_screen(browser, service.url, width=390) as screen:
        page = screen.page
        foreign: list[str] = []
        page.on("request", lambda request: request.url.startswith(service.url) or foreign.append(request.url))
        await page.goto(f"{service.url}/docs")
        for name in ("send_message", "receive_messages"):
            await page.click(f"#operations-messages-{name} .opblock-summary-control")
        samples = page.get_by_role("region", name="Code samples")
        assert f"curl -s '{service.url}/v1/queues/orders/messages'" in await samples.first.inner_text()
        await samples.first.get_by_role("button", name="Python").click()
        for shown in await samples.all_inner_texts():
            assert "httpx.request(" in shown
            assert f'"{service.url}/v1/queues/orders/messages' in shown
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
        assert foreign == []


async def test_the_page_is_dark_and_readable_on_a_dark_screen(serve: Callable[..., PeeklockProcess]) -> None:
    service = serve()
    ground = "getComputedStyle(document.body).backgroundColor"
    async with open_browser() as browser, open_screen(browser, service.url, theme="dark") as screen:
        page = screen.page
        await page.goto(f"{service.url}/docs")
        await page.click("#operations-messages-send_message .opblock-summary-control")
        await page.wait_for_selector(".code-samples")
        dark = await page.evaluate(ground)
        assert "color-contrast" not in dict(await faults_of_accessibility(page))
        await page.emulate_media(color_scheme="light")
        await page.wait_for_selector("html:not(.dark-mode)")
        assert await page.evaluate(ground) != dark


async def test_descriptions_are_read_as_markdown(serve: Callable[..., PeeklockProcess]) -> None:
    service = serve()
    async with open_browser() as browser, open_screen(browser, service.url) as screen:
        page = screen.page
        await page.goto(f"{service.url}/docs")
        await page.click("#operations-messages-recover_messages .opblock-summary-control")
        operation = page.locator("#operations-messages-recover_messages")
        assert "this receiver_id and" in await operation.locator(".opblock-summary-description").inner_text()
        assert await operation.locator(".opblock-description code").count() > 0
        await operation.get_by_role("tab", name="Schema").first.click()
        assert "`" not in await page.locator(".swagger-ui").inner_text()


async def test_the_pages_of_a_fresh_copy_lead_to_each_other(serve_as_reader: Callable[..., PeeklockProcess]) -> None:
    """`python3 dev.py run` has built the guide there."""
    service = serve_as_reader()
    async with open_browser() as browser, open_screen(browser, service.url) as screen:
        page = screen.page
        await page.goto(f"{service.url}/docs")
        await page.get_by_role("link", name="Console").click()
        await page.wait_for_url(f"{service.url}/console")
        await page.get_by_role("link", name="API").click()
        await page.wait_for_url(f"{service.url}/docs")
        await page.get_by_role("link", name="Guide").click()
        await page.wait_for_url(f"{service.url}/docs/guide/")
        await page.get_by_role("link", name="API", exact=True).click()
        await page.wait_for_url(f"{service.url}/docs")
        await page.goto(f"{service.url}/docs/guide/http/send.html")
        await page.get_by_role("link", name="Console", exact=True).click()
        await page.wait_for_url(f"{service.url}/console")
