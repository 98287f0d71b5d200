"""The console in a real browser: live figures, keyboard, themes, sizes, hostile content, accessibility and its weight."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.console.browser import TIMEOUT_MS, faults_of_accessibility, open_browser, open_screen
from tests.peeklock_process import PeeklockProcess

pytestmark = pytest.mark.full

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
MAX_FIRST_PAINT_BYTES = 100 << 10
IS_LAID_OUT = "(element) => element.checkVisibility({contentVisibilityAuto: true})"
HAS_COLOUR = """(canvas) => {
  const { width, height } = document.querySelector(canvas);
  const drawn = document.querySelector(canvas).getContext("2d").getImageData(0, 0, width, height).data;
  const wanted = [15, 118, 110, 255];
  return drawn.some((_, at) => at % 4 === 0 && wanted.every((value, part) => drawn[at + part] === value));
}"""
"""Whether a plot has a pixel in the colour of its first series, `--series-1` in a light theme."""
IS_DRAWN = "(canvas) => canvas.getContext('2d').getImageData(0, 0, 120, 24).data.some(Boolean)"


PATHS = (
    "", "?span=24h", "/queues/orders", "/queues/orders/settings", "/queues/states/moves?to_queue=orders", "/topics",
    "/topics/events", "/states", "/states/customer.17",
    "/transactions", "/keys", "/trail?id=order-1", "/new-queue", "/queues/orders/delete", "/new-topic",
    "/topics/events/settings", "/topics/events/delete", "/topics/events/new-subscription",
    "/topics/events/subscriptions/some", "/topics/events/subscriptions/some/delete",
)  # fmt: skip
"""The main pages, once a queue, a topic and a state exist."""


REPEATED_SCREENS = ((375, "light"), (768, "light"), (768, "dark"), (2560, "dark"))
"""The narrowest and the widest screen, once in each theme, show what these would show."""


def add_topic_state_and_move(call: Callable[..., Any]) -> None:
    """Add a topic with two subscriptions, a state with two versions, and a move task of its queue to queue `orders`."""
    call("PUT", "/topics/events", description=HOSTILE)
    call("PUT", "/topics/events/subscriptions/all")
    call("PUT", "/topics/events/subscriptions/some", filter=f"message.subject == {json.dumps(HOSTILE)}")
    for number in range(2):
        call("POST", "/queues/states/messages", body=number, correlation_id="order-1")
        (message,) = call("POST", "/queues/states/messages/receive")["messages"]
        state = {"key": "customer.17", "if_version": number, "value": {HOSTILE: number, "value": HOSTILE}}
        call("POST", f"/queues/states/locks/{message['lock_token']}/commit", state=state)
    call("POST", "/queues/states/moves", to_queue="orders", rate_per_second=50)


def available(page: Page, queue: str) -> Locator:
    """The cell with the available messages of a queue."""
    return page.locator(f"tr[data-row={queue}] td.number").nth(3)


async def test_figures_change_while_the_page_is_open(server: PeeklockProcess, call: Callable[..., Any]) -> None:
    call("POST", "/queues/orders/messages", body=1)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open()
        await expect(available(page, "orders")).to_have_text("1")
        call("POST", "/queues/orders/messages", body=2)
        call("POST", "/queues/payments/messages", body=1)
        await expect(available(page, "orders")).to_have_text("2", timeout=TIMEOUT_MS)
        await page.wait_for_selector("tr[data-row=payments]")
        await expect(page.locator('[data-total="available"]')).to_have_text("3")
        async with httpx.AsyncClient(timeout=60) as client:
            assert (await client.delete(f"{server.url}/v1/queues/payments")).is_success
        await expect(page.locator("tr[data-row=payments]")).to_have_class(re.compile("gone"), timeout=TIMEOUT_MS)


async def test_the_plots_and_their_sentence_follow_what_happens(
    server: PeeklockProcess, call: Callable[..., Any]
) -> None:
    call("POST", "/queues/orders/messages", body=1)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open("?span=1h")
        sentence = page.locator("[data-sentence]")
        await expect(sentence).to_contain_text("1 wait")
        for body in range(3):
            call("POST", "/queues/orders/messages", body=body)
        await expect(sentence).to_contain_text("4 wait now.", timeout=TIMEOUT_MS)
        await expect(page.locator("[data-amount=waiting]")).to_have_text("4")
        await expect(page.locator("[data-total=available]")).to_have_text("4")
        assert await page.locator("[data-line=waiting]").get_attribute("d")
        await page.get_by_role("link", name="24 hours").click()
        await page.wait_for_url("**span=24h**")
        await expect(sentence).to_contain_text("4 wait now.")


async def test_the_figures_of_a_queue_and_its_sentence_change_together(
    server: PeeklockProcess, call: Callable[..., Any]
) -> None:
    call("POST", "/queues/orders/messages", body=1)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open("/queues/orders")
        await expect(page.locator("[data-explanation]")).to_contain_text("1 message is available")
        call("POST", "/queues/orders/messages", body=2)
        await expect(page.locator("[data-count=available]")).to_have_text("2", timeout=TIMEOUT_MS)
        await expect(page.locator("[data-explanation]")).to_contain_text("2 messages are available")
        await expect(page.locator("figure .legend").first).to_contain_text("Sent")


async def test_a_single_average_is_drawn_as_a_point(server: PeeklockProcess, call: Callable[..., Any]) -> None:
    call("POST", "/queues/orders/messages", body=1)
    call("POST", "/queues/orders/messages/receive")
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open("/queues/orders")
        await page.wait_for_function(HAS_COLOUR, arg="[data-plot=seconds] canvas", timeout=TIMEOUT_MS)


async def test_the_order_and_the_number_of_queues_with_attention_follow_the_figures(
    server: PeeklockProcess, call: Callable[..., Any]
) -> None:
    for queue in ("alpha", "beta"):
        call("POST", f"/queues/{queue}/messages", body=1)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open()
        rows, attention_count = page.locator("tr[data-row]"), page.locator("[data-attention-count]")
        await expect(rows.nth(0)).to_have_attribute("data-row", "alpha")
        await expect(attention_count).to_be_hidden()
        call("PATCH", "/queues/beta", status="disabled")
        await expect(attention_count).to_have_text("1 needs attention", timeout=TIMEOUT_MS)
        await expect(rows.nth(0)).to_have_attribute("data-row", "beta")
        await expect(rows.nth(0).locator(".tag")).to_have_text("disabled")
        await rows.nth(0).hover()
        call("PATCH", "/queues/beta", status="active")
        call("POST", "/queues/gamma/messages", body=1)
        call("PATCH", "/queues/gamma", status="disabled")
        await expect(page.locator("[data-found]")).to_have_text("3 queues", timeout=TIMEOUT_MS)
        await expect(rows.nth(0)).to_have_attribute("data-row", "beta")
        await page.locator("h1").hover()
        await expect(rows.nth(0)).to_have_attribute("data-row", "gamma", timeout=TIMEOUT_MS)
        await expect(rows.nth(0).locator("a")).to_have_attribute("href", re.compile("/console/queues/gamma$"))
        await expect(rows.nth(2)).to_have_attribute("data-row", "beta")


@pytest.mark.nightly
async def test_the_first_queue_appears_while_the_page_is_open(
    server: PeeklockProcess, call: Callable[..., Any]
) -> None:
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open()
        await expect(page.get_by_text("There is no queue yet")).to_be_visible()
        call("POST", "/queues/orders/messages", body=1)
        await expect(available(page, "orders")).to_have_text("1", timeout=TIMEOUT_MS)


async def no_connection(route: Route) -> None:
    """The server does not answer."""
    await route.abort()


async def no_stream(route: Route) -> None:
    """The server, or a proxy before it, answers that it cannot serve now."""
    await route.fulfill(status=503, content_type="text/html", body="")


@pytest.mark.parametrize("answer", [no_connection, pytest.param(no_stream, marks=pytest.mark.nightly)])
async def test_a_lost_connection_is_said_and_nothing_is_lost_after_it(
    server: PeeklockProcess, call: Callable[..., Any], answer: Callable[[Route], Awaitable[None]]
) -> None:
    call("POST", "/queues/orders/messages", body=1)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open()
        banner = page.locator("[data-connection]")
        assert await banner.is_hidden()
        await page.route("**/console/live?*", answer)
        await page.reload()
        await banner.wait_for(state="visible")
        assert (await banner.text_content() or "").startswith("No connection to the server.")
        call("POST", "/queues/orders/messages", body=2)
        await page.unroute("**/console/live?*")
        await banner.wait_for(state="hidden")
        await expect(available(page, "orders")).to_have_text("2", timeout=TIMEOUT_MS)
        screen.faults.clear()  # the browser reports the aborted requests


async def test_every_page_is_reached_by_the_keyboard(server: PeeklockProcess, call: Callable[..., Any]) -> None:
    for queue in ("alpha", "beta"):
        call("POST", f"/queues/{queue}/messages", body=1)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open()
        while not await page.locator('tr[data-row="beta"]').count():  # a server caches the counts of its queues
            await page.reload()
        await page.keyboard.press("?")
        await page.locator("dialog#shortcuts").wait_for(state="visible")
        await page.keyboard.press("Escape")
        await page.keyboard.press("/")
        await page.keyboard.type("bet")
        assert await page.locator("tr[data-row]:visible").count() == 1
        assert "find=bet" in page.url
        await page.keyboard.press("Escape")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/console/queues/beta")
        for key, path in (
            ("t", "/topics"),
            ("s", "/states"),
            ("x", "/transactions"),
            ("m", "/trail"),
            ("k", "/keys"),
            ("q", ""),
        ):
            await page.keyboard.press("g")
            await page.keyboard.press(key)
            await page.wait_for_url(f"**/console{path}")


@pytest.mark.nightly
async def test_a_form_of_a_page_is_accepted(server: PeeklockProcess, call: Callable[..., Any]) -> None:
    call("POST", "/queues/orders/messages", body=1)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open("/queues/orders")
        page.on("dialog", lambda dialog: dialog.accept())
        await page.get_by_role("button", name="Pause sends").click()
        await page.get_by_role("button", name="Resume sends").wait_for(state="visible")
        assert call("GET", "/queues/orders")["status"] == "send_disabled"


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (375, "dark"),
        (2560, "light"),
        *(pytest.param(*screen, marks=pytest.mark.nightly) for screen in REPEATED_SCREENS),
    ],
)
async def test_pages_fit_every_width_and_have_no_fault_of_accessibility(
    server: PeeklockProcess, call: Callable[..., Any], width: int, theme: str
) -> None:
    call("POST", "/queues/orders/messages", body=1)
    call("PUT", "/queues/a-queue-with-a-long-name.and.many.parts", status="receive_disabled")
    call("POST", "/queues/a-queue-with-a-long-name.and.many.parts/messages", body=1)
    add_topic_state_and_move(call)
    async with open_browser() as browser, open_screen(browser, server.url, width=width, theme=theme) as screen:
        for path in (*PATHS, "/sign-in", "?find=nothing"):
            page = await screen.open(path)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert await faults_of_accessibility(page) == [], path
            if await (menu := page.get_by_role("button", name="Menu")).is_visible():
                await menu.click()
                assert await faults_of_accessibility(page) == [], path
            for current in await page.locator("nav [aria-current]").all():
                await expect(current).to_be_in_viewport(ratio=0.9)


async def test_hostile_content_stays_text(server: PeeklockProcess, call: Callable[..., Any]) -> None:
    call("PUT", "/queues/orders", description=HOSTILE)
    call("POST", "/queues/orders/messages", body=HOSTILE, subject=HOSTILE, properties={HOSTILE[:60]: HOSTILE})
    call("POST", "/queues/orders/messages/receive", receiver_id=HOSTILE)
    add_topic_state_and_move(call)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        for path in PATHS:
            page = await screen.open(path)
            assert "owned" not in await page.title()
            assert await page.locator("main img").count() == 0


async def test_a_foreign_page_cannot_frame_the_console(server: PeeklockProcess) -> None:
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        await screen.page.set_content(f'<iframe src="{server.url}/console"></iframe>')
        await screen.page.wait_for_load_state("networkidle")
        assert [frame.url for frame in screen.page.frames if "console" in frame.url] == []
        screen.faults.clear()  # the browser says that it has refused the frame


async def test_the_theme_is_kept_and_times_are_those_of_the_reader(
    server: PeeklockProcess, call: Callable[..., Any]
) -> None:
    call("POST", "/queues/orders/messages", body=1)
    call("POST", "/queues/orders/messages/receive")
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open("/queues/orders")
        time = page.locator("time").first
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", await time.get_attribute("title") or "")
        assert await time.text_content() != await time.get_attribute("title")
        await page.keyboard.press("t")
        assert await page.locator("html").get_attribute("data-theme") == "dark"
        await page.reload()
        assert await page.locator("html").get_attribute("data-theme") == "dark"


async def test_the_first_paint_of_500_queues_is_light_and_updates_are_short(
    server: PeeklockProcess, call: Callable[..., Any]
) -> None:
    for number in range(500):
        call("PUT", f"/queues/queue-{number:03d}")
    weights: list[int] = []
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        session = await screen.page.context.new_cdp_session(screen.page)
        await session.send("Network.enable")
        session.on("Network.loadingFinished", lambda event: weights.append(event["encodedDataLength"]))
        page = await screen.open()
        await page.wait_for_selector("tr[data-row=queue-499]")
        assert 0 < sum(weights) <= MAX_FIRST_PAINT_BYTES
        last = page.locator("tr[data-row=queue-499]")
        assert not await last.evaluate(IS_LAID_OUT)
        assert not await last.locator("canvas").evaluate(IS_DRAWN)
        await last.scroll_into_view_if_needed()
        await page.wait_for_function(IS_LAID_OUT, arg=await last.element_handle())
        await page.wait_for_function(IS_DRAWN, arg=await last.locator("canvas").element_handle())
        for number in range(0, 500, 5):
            call("POST", f"/queues/queue-{number:03d}/messages", body=1)
        await expect(available(page, "queue-495")).to_have_text("1", timeout=TIMEOUT_MS)
        assert await page.locator("tr[data-row]").count() == 500
