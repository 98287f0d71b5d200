"""Messages and dead letters in a real browser: progress that can be stopped, copies, hostile bodies, sizes, accessibility."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.console.browser import TIMEOUT_MS, faults_of_accessibility, open_browser, open_screen
from tests.peeklock_process import PeeklockProcess

pytestmark = pytest.mark.full

Call = Callable[..., Any]
QUEUE = "/queues/orders"
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def dead_letter(call: Call, count: int, reason: str = "bad_address", body: Any = 1) -> None:
    """Dead-letter messages."""
    for _ in range(count):
        call("POST", f"{QUEUE}/messages", body=body, properties={"note": HOSTILE}, subject=HOSTILE)
    for message in call("POST", f"{QUEUE}/messages/receive", max_messages=count)["messages"]:
        call("POST", f"{QUEUE}/locks/{message['lock_token']}/dead-letter", reason=reason)


def count(call: Call, state: str) -> int:
    """The number of messages in a state."""
    return call("GET", QUEUE)["counts"][state]


def status(page: Page) -> Any:
    """The sentence about the progress."""
    return page.locator("[role=status]")


async def test_a_redrive_shows_its_progress_and_stops_in_the_middle(server: PeeklockProcess, call: Call) -> None:
    dead_letter(call, 12)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open(f"{QUEUE}/dead-letters/redrive?rate_per_second=2")
        await page.get_by_role("button", name="Redrive 12").click()
        await expect(status(page)).to_have_text("4 of 12 moved.", timeout=TIMEOUT_MS)
        await page.get_by_role("button", name="Stop").click()
        await expect(status(page)).to_contain_text("Stopped.", timeout=TIMEOUT_MS)
        moved = count(call, "available")
        assert await status(page).text_content() == f"{moved} of 12 moved. Stopped."
        assert 4 <= moved < 12
        await page.get_by_role("button", name="Redrive 12").click()
        await page.get_by_role("button", name="Stop").wait_for(state="visible")
        await expect(status(page)).to_contain_text("Nothing is left", timeout=TIMEOUT_MS)
        assert count(call, "available") == 12


async def test_a_purge_asks_for_the_name_and_leads_to_its_undo(server: PeeklockProcess, call: Call) -> None:
    dead_letter(call, 3)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open(f"{QUEUE}/dead-letters")
        await page.get_by_role("link", name="Purge bad_address").click()
        await page.get_by_label("Type the name").fill("order")
        await page.get_by_role("button", name="Purge 3").click()
        await expect(status(page)).to_contain_text("This is not the name of the queue.", timeout=TIMEOUT_MS)
        assert count(call, "dead_lettered") == 3
        screen.faults.clear()  # the browser reports the refusal
        await page.get_by_label("Type the name").fill("orders")
        await page.get_by_role("button", name="Purge 3").click()
        await expect(status(page)).to_contain_text("3 of 3 removed.", timeout=TIMEOUT_MS)
        await page.get_by_role("link", name="Undo").click()
        await page.get_by_role("button", name="Restore 3").click()
        await expect(status(page)).to_contain_text("3 of 3 restored.", timeout=TIMEOUT_MS)
        assert (count(call, "dead_lettered"), count(call, "available")) == (0, 3)


async def test_selected_dead_letters_are_redriven_after_their_plan(server: PeeklockProcess, call: Call) -> None:
    dead_letter(call, 3)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open(f"{QUEUE}/dead-letters")
        await page.get_by_role("link", name="bad_address", exact=True).click()
        redrive = page.get_by_role("button", name="Redrive", exact=True)
        await expect(redrive).to_be_disabled()
        await page.get_by_label("Select message 1").check()
        await page.get_by_label("Select message 3").check()
        await expect(page.locator("[data-selected]")).to_have_text("2 of 3 selected:")
        await redrive.click()
        await expect(page.locator(".explanation")).to_contain_text("2 messages with")
        await page.get_by_role("button", name="Redrive 2").click()
        await expect(page.get_by_text("2 messages were redriven.")).to_be_visible()
        assert "filter=" in page.url
        assert (count(call, "dead_lettered"), count(call, "available")) == (1, 2)
        await expect(page.get_by_label("Select message 2")).to_be_visible()


async def test_a_new_plan_replaces_one_that_is_outdated(server: PeeklockProcess, call: Call) -> None:
    dead_letter(call, 2)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open(f"{QUEUE}/dead-letters")
        await page.get_by_label("Select all rows of this page").check()
        await page.get_by_role("button", name="Purge", exact=True).click()
        call("POST", f"{QUEUE}/dead-letter/redrive", filter="message.sequence_number == 1")
        await page.get_by_role("button", name="Purge 2").click()
        await expect(page.get_by_role("alert").filter(has_text="Messages have changed")).to_be_visible()
        await page.get_by_role("button", name="Purge 1").click()
        await expect(page.get_by_text("1 message was purged.")).to_be_visible()
        assert (count(call, "dead_lettered"), count(call, "available")) == (0, 1)
        screen.faults.clear()  # the browser reports the refusal


async def test_messages_are_selected_by_the_keyboard(server: PeeklockProcess, call: Call) -> None:
    for body in range(2):
        call("POST", f"{QUEUE}/messages", body=body)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open(f"{QUEUE}/messages")
        for key in "jjx":
            await page.keyboard.press(key)
        await expect(page.get_by_label("Select message 2")).to_be_checked()
        await expect(page.get_by_label("Select message 1")).not_to_be_checked()


async def test_a_dead_letter_is_redriven_from_its_page(server: PeeklockProcess, call: Call) -> None:
    dead_letter(call, 1)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open(f"{QUEUE}/messages/1")
        await expect(page.locator("time[data-ago] + .ago").first).to_have_text(re.compile("^(now|.* ago)$"))
        page.once("dialog", lambda dialog: dialog.accept())
        await page.get_by_role("button", name="Redrive").click()
        await expect(page.locator(".title .tag")).to_have_text("available")
        assert count(call, "available") == 1


async def test_a_dead_letter_is_repaired_by_the_keyboard(server: PeeklockProcess, call: Call) -> None:
    dead_letter(call, 1)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open(f"{QUEUE}/messages?state=dead_lettered")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="Edit and resubmit").press("Enter")
        await page.get_by_label("Body", exact=True).fill('{"repaired": true}')
        await page.get_by_role("button", name="Resubmit").press("Enter")
        await page.wait_for_url("**/messages/2")
        await expect(page.locator(".tree")).to_contain_text("repaired true")
        assert (count(call, "dead_lettered"), count(call, "available")) == (0, 1)


async def test_a_cancellation_asks_first(server: PeeklockProcess, call: Call) -> None:
    call("POST", f"{QUEUE}/messages", body=1)
    async with open_browser() as browser, open_screen(browser, server.url) as screen:
        page = await screen.open(f"{QUEUE}/messages/1")
        page.once("dialog", lambda dialog: dialog.dismiss())
        await page.get_by_role("button", name="Cancel").click()
        assert count(call, "available") == 1
        page.once("dialog", lambda dialog: dialog.accept())
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator(".title .tag")).to_have_text("ended")
        assert count(call, "available") == 0


@pytest.mark.parametrize("width", [390, 1280])
async def test_a_group_of_dead_letters_is_listed_and_redriven_at_every_width(
    server: PeeklockProcess, call: Call, width: int
) -> None:
    dead_letter(call, 2)
    dead_letter(call, 1, reason="other")
    async with open_browser() as browser, open_screen(browser, server.url, width=width) as screen:
        page = await screen.open(f"{QUEUE}/dead-letters")
        reason = page.get_by_role("link", name="bad_address", exact=True)
        assert "underline" in await reason.evaluate("link => getComputedStyle(link).textDecorationLine")
        await reason.click()
        await expect(page.get_by_role("heading", name="Matching dead letters")).to_be_visible()
        await page.get_by_role("link", name="Redrive bad_address").click()
        await page.get_by_role("button", name="Redrive 2").click()
        await expect(status(page)).to_contain_text("Nothing is left", timeout=TIMEOUT_MS)
        assert count(call, "available") == 2


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (375, "light"),
        (2560, "dark"),
        pytest.param(375, "dark", marks=pytest.mark.nightly),
        pytest.param(2560, "light", marks=pytest.mark.nightly),
    ],
)
async def test_pages_fit_every_width_and_have_no_fault_of_accessibility(
    server: PeeklockProcess, call: Call, width: int, theme: str
) -> None:
    call("PUT", QUEUE, history=True)
    dead_letter(call, 2, reason="a-reason-of-many-letters" * 5, body={"a": [1, {"b": HOSTILE}], "long": "x" * 300})
    call("POST", f"{QUEUE}/messages", body=HOSTILE, message_id="y" * 128)
    paths = ("messages", "messages?filter=x", "messages/1", "messages/1?body=hex", "messages/3", "messages/3/edit")
    selected = "number=1&number=3&number=99"
    lists = ("dead-letters", "dead-letters?filter=message.priority > 8", f"selected?action_name=redrive&{selected}")
    lists = (
        *lists,
        f"selected?action_name=purge&list=messages&{selected}",
        "dead-letters?action_name=purge&done=1&since=x",
    )
    forms = ("messages/1/resubmit", "send", *lists, *(f"dead-letters/{name}" for name in ACTIONS))
    async with open_browser() as browser, open_screen(browser, server.url, width=width, theme=theme) as screen:
        for path in (*paths, *forms):
            page = await screen.open(f"{QUEUE}/{path}")
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert await faults_of_accessibility(page) == [], path
            assert await page.title() != "owned", path
            screen.faults = [fault for fault in screen.faults if "422" not in fault]  # that of the filter


ACTIONS = ("redrive", "purge", "restore")
