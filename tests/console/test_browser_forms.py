"""Forms in a real browser: what was typed stays in the form after every refusal, and can be sent again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.console.browser import faults_of_accessibility, open_browser, open_screen
from tests.peeklock_process import PeeklockProcess

pytestmark = pytest.mark.full

Call = Callable[..., Any]
QUEUE = "/queues/orders"
KEPT = "Nothing that you have typed is lost."
FORMS = [
    (f"{QUEUE}/settings", "description", "typed", "Preview the change", "This is what changes"),
    (f"{QUEUE}/send", "body", '"typed"', "Send", "Message 3"),
    (f"{QUEUE}/messages/2/edit", "properties", '{"typed": 1}', "Save", "typed"),
    (f"{QUEUE}/messages/1/resubmit", "body", '"typed"', "Resubmit", "Message 4"),
    ("/topics/shop", "properties", '{"typed": 1}', "Test", "1 of 1 subscription would copy this message."),
    ("/new-queue", "name", "typed", "Create the queue", "No message was locked at"),
    ("/new-topic", "name", "typed", "Create the topic", "its messages go nowhere"),
    ("/topics/shop/new-subscription", "name", "typed", "Create the subscription", "shop.typed"),
    ("/queues/typed/delete", "name", "typed", "Delete the queue", "Dead-lettered"),
    ("/keys", "principal", "typed", "Create the key", "The key of typed"),
]
"""The forms that people type into: the page, a field, a text for it, the button, and what shows that it was carried out. The first key
closes the server, so its form is the last one."""


def prepare(call: Call) -> None:
    """Make a dead letter, a message and a topic."""
    for body in range(2):
        call("POST", f"{QUEUE}/messages", body=body)
    (message,) = call("POST", f"{QUEUE}/messages/receive")["messages"]
    call("POST", f"{QUEUE}/locks/{message['lock_token']}/dead-letter", reason="bad_address")
    call("PUT", "/topics/shop")
    call("PUT", "/topics/shop/subscriptions/all")


def refused(page: Page) -> Locator:
    """The note that says why a form was refused."""
    return page.locator("[data-refused]")


class Answers:
    """What stands between the browser and the server: it answers forms instead of the server."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.posted = 0

    async def refuse(self, *, status: int | None = None, detail: str = "") -> None:
        """Refuse forms with a sentence, or without a status leave them without an answer."""

        async def answer(route: Route) -> None:
            if route.request.method != "POST":
                await route.continue_()
            elif status is None:
                await route.abort()
            else:
                await route.fulfill(status=status, json={"fault": detail})

        await self._page.route("**/console/**", answer)

    async def lead_to(self, path: str) -> None:
        """Answer forms with the address of another page."""

        async def answer(route: Route) -> None:
            if route.request.method == "POST":
                await route.fulfill(status=303, headers={"location": path})
            else:
                await route.continue_()

        await self._page.route("**/console/**", answer)

    async def answer_page(self) -> None:
        """Answer forms as a proxy does whose server is away: with a page of its own."""

        async def answer(route: Route) -> None:
            if route.request.method == "POST":
                await route.fulfill(status=502, content_type="text/html", body="<main>Bad gateway</main>")
            else:
                await route.continue_()

        await self._page.route("**/console/**", answer)

    async def count(self) -> None:
        """Let forms pass, and count them."""

        async def answer(route: Route) -> None:
            self.posted += route.request.method == "POST"
            await route.continue_()

        await self._page.unroute("**/console/**")
        await self._page.route("**/console/**", answer)


async def test_every_form_stays_with_what_was_typed_and_is_sent_again(server: PeeklockProcess, call: Call) -> None:
    prepare(call)
    async with open_browser() as browser, open_screen(browser, server.url, width=375) as screen:
        answers = Answers(screen.page)
        for path, field, text, button, result in FORMS:
            await refuse_and_send_again(await screen.open(path), answers, field, text, button)
            await expect(screen.page.get_by_text(result).first).to_be_visible()
            await expect(refused(screen.page)).to_have_count(0)
        screen.faults.clear()  # the browser reports the refusals


async def refuse_and_send_again(page: Page, answers: Answers, field: str, text: str, button: str) -> None:
    """Fill a field in, send the form, which is refused in three ways, and then let it pass."""
    await page.locator(f"#{field}").fill(text)
    for status, sentence in (
        (503, "The database is away."),
        (429, "Too many."),
        (None, "No connection to the server."),
    ):
        await answers.refuse(status=status, detail=sentence)
        await page.get_by_role("button", name=button, exact=True).click()
        await expect(refused(page)).to_contain_text(sentence)
        await expect(refused(page)).to_contain_text(KEPT)
        await expect(page.locator(f"#{field}")).to_have_value(text)
        await page.unroute("**/console/**")
    assert await faults_of_accessibility(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= 375
    await refused(page).get_by_role("button", name="Try again").click()


async def test_a_form_that_is_being_sent_is_not_sent_twice(server: PeeklockProcess, call: Call) -> None:
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open("/keys")
        await page.locator("#principal").fill("shop")
        answers = Answers(page)
        await answers.count()
        await page.get_by_role("button", name="Create the key").dblclick()
        await expect(page.get_by_text("The key of shop")).to_be_visible()
        assert answers.posted == 1


async def test_a_form_that_took_effect_leads_to_its_page_also_if_that_is_refused(server: PeeklockProcess) -> None:
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open("/keys")
        await page.locator("#principal").fill("shop")
        await Answers(page).lead_to("/console/none")
        await page.get_by_role("button", name="Create the key").click()
        await expect(page.get_by_text("The console has no such page.")).to_be_visible()
        assert page.url.endswith("/console/none")
        screen.faults.clear()  # the browser reports the refusal


async def test_a_proxy_that_answers_instead_of_the_server_leaves_a_doubt(server: PeeklockProcess) -> None:
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open("/keys")
        await page.locator("#principal").fill("shop")
        await page.route("**/console/**", lambda route: route.fulfill(status=504, body="Gateway Timeout"))
        await page.get_by_role("button", name="Create the key").click()
        await expect(refused(page)).to_contain_text(
            "cannot answer now (504). It is not known whether this request took"
        )
        screen.faults.clear()  # the browser reports the refusal


async def test_a_form_stays_if_a_proxy_answers_instead_of_the_server(server: PeeklockProcess, call: Call) -> None:
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open("/keys")
        await page.locator("#principal").fill("typed")
        await Answers(page).answer_page()
        await page.get_by_role("button", name="Create the key").click()
        await expect(refused(page)).to_contain_text("The server cannot answer now (502).")
        await expect(page.locator("#principal")).to_have_value("typed")
        screen.faults.clear()  # the browser reports the answer 502


async def test_a_fault_is_shown_at_its_field_and_the_field_has_the_focus(server: PeeklockProcess, call: Call) -> None:
    prepare(call)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open(f"{QUEUE}/send")
        await page.locator("#body").fill("{")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator("#fault-body")).to_contain_text("This is not valid JSON")
        await expect(page.locator("#body")).to_be_focused()
        await expect(page.locator("#body")).to_have_value("{")
        assert page.url.endswith(f"{QUEUE}/send")
        await page.locator("#body").fill("1")
        await page.get_by_role("button", name="Send").click()
        await page.wait_for_url("**/messages/3")
        screen.faults.clear()  # the browser reports the answer 422


async def test_the_fields_of_the_chosen_policy_are_shown_and_drawn(server: PeeklockProcess, call: Call) -> None:
    prepare(call)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open("/new-queue")
        await expect(page.locator("#retry_first")).to_be_hidden()
        await page.get_by_label("It waits longer by a factor after each failure.").check()
        await expect(page.locator("#retry_first")).to_be_visible()
        await expect(page.locator("#retry_step")).to_be_hidden()
        await page.locator("#name").fill("retried")
        await page.locator("#retry_first").fill("soon")
        await page.get_by_role("button", name="Draw the delays").click()
        await expect(page.locator("#fault-retry_first")).to_contain_text("Write a duration")
        await expect(page.locator("#retry_first")).to_be_focused()
        await page.locator("#retry_first").fill("2 s")
        await page.get_by_role("button", name="Draw the delays").click()
        await expect(page.locator(".delays li").nth(2)).to_contain_text("8 s")
        await page.get_by_role("button", name="Create the queue").click()
        await page.wait_for_url("**/console/queues/retried?**")
        assert call("GET", "/queues/retried")["retry"]["first_seconds"] == 2
        screen.faults.clear()  # the browser reports the answer 422


async def test_the_delays_are_drawn_again_while_the_policy_changes(server: PeeklockProcess, call: Call) -> None:
    prepare(call)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open(f"{QUEUE}/settings")
        sentence = page.locator(".drawing .help")
        await expect(sentence).to_have_text(re.compile("^Now stored: Each failed delivery is repeated at once."))
        await page.get_by_label("It waits for the same time after each failure.").check()
        await expect(page.locator(".drawing")).to_have_count(0)  # the delay has yet to be typed
        await page.locator("#retry_delay").fill("5 s")
        await expect(page.locator(".delays li").first).to_contain_text("5 s")
        await page.locator("#max_delivery_count").fill("3")
        await expect(sentence).to_contain_text("Failure 3 dead-letters the message")
        await expect(page.locator("#max_delivery_count")).to_be_focused()
        assert call("GET", QUEUE)["retry"] == {"kind": "none"}
        screen.faults.clear()  # the browser reports the answer 422


async def test_back_returns_from_a_preview_to_the_form_as_it_was(server: PeeklockProcess, call: Call) -> None:
    prepare(call)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open(f"{QUEUE}/settings")
        await page.locator("#description").fill("typed")
        for back in (page.go_back, page.get_by_role("link", name="Back").click):
            await page.get_by_role("button", name="Preview the change").click()
            await expect(page.get_by_text("This is what changes")).to_be_visible()
            await back()
            await expect(page.locator("#description")).to_have_value("typed")
        await page.get_by_role("button", name="Preview the change").click()
        await page.get_by_role("button", name="Change the settings").click()
        await expect(page.locator("#description")).to_have_value("typed")
        assert call("GET", QUEUE)["description"] == "typed"


async def test_what_was_typed_outlives_the_session(server: PeeklockProcess, call: Call) -> None:
    prepare(call)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open(f"{QUEUE}/send")
        await page.locator("#body").fill('"typed"')
        other = await page.context.new_page()
        await other.goto(f"{server.url}/console/keys")
        await other.locator("#principal").fill("operator")
        for right in ("listen", "browse", "manage"):
            await other.get_by_label(right).check()
        await other.get_by_role("button", name="Create the key").click()
        secret = await other.locator("#secret").inner_text()
        await page.get_by_role("button", name="Send").click()
        await expect(refused(page)).to_contain_text("Your session has ended.")
        await other.goto(f"{server.url}/console/sign-in")
        await other.locator("#api_key").fill(secret)
        await other.get_by_role("button", name="Sign in").click()
        await other.wait_for_url("**/console")
        await page.get_by_role("button", name="Try again").click()
        await page.wait_for_url("**/messages/3")
        await expect(page.get_by_text('"typed"').first).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await page.wait_for_url("**/console/sign-in")
