"""Dead letters are grouped by reason. Many of them are redriven, purged and restored by a plan, in steps that can stop."""

import html
import re
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import httpx
import pytest

from app.broker.administration.dead_letter_groups import group_dead_letters
from app.broker.administration.page_limits import PageLimits
from app.console.dead_letters import reason_filter
from app.domain.access import Right
from tests.console.console_server import ConsoleServer, token_of
from tests.virtual_clock import run_advancing

QUEUE, DEAD = "/queues/orders", "/queues/orders/dead-letters"
HOSTILE = "\"'\\ <script>alert(1)</script>\n\u0001é😀"


async def dead_letter(console: ConsoleServer, *reasons: str, **message: Any) -> None:
    """Dead-letter a message for each reason."""
    for reason in reasons:
        await console.api.send(**{"body": reason, **message})
        (received,) = await console.api.receive()
        assert (await console.api.settle(received, "dead-letter", reason=reason)).is_success


async def form_of(console: ConsoleServer, path: str) -> dict[str, str]:
    """The fields of the form that carries out an action."""
    page = await console.page(path)
    (form,) = re.findall(r"<form[^>]*data-steps>.*?</form>", page, re.DOTALL)
    return {name: html.unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form)}


async def step(console: ConsoleServer, path: str, fields: dict[str, str]) -> httpx.Response:
    """Send the form as the script of the page does."""
    headers = {"accept": "application/json"}
    return await console.http.post(f"/console{path.partition('?')[0]}", data=fields, headers=headers)


def rows(page: str) -> list[tuple[str, str]]:
    """The reasons and counts of the groups."""
    found = re.findall(r'<th scope="row"><a [^>]*>([^<]*)</a></th>\s*<td class="number">([^<]*)</td>', page)
    return [(html.unescape(reason), count) for reason, count in found]


async def test_dead_letters_are_grouped_by_reason(console: ConsoleServer) -> None:
    await dead_letter(console, "bad_address")
    await console.api.clock.advance(60)
    await dead_letter(console, "no-such-article", "bad_address")
    page = await console.page(DEAD)
    assert rows(page) == [("bad_address", "2"), ("no-such-article", "1")]
    assert "3 dead letters" in page
    times = re.findall(r'<time datetime="([^"]*)"', page)
    assert times[0] < times[1] == times[2] == times[3]
    assert "partial" not in page


async def test_counts_of_a_part_are_said_to_be_partial(console: ConsoleServer) -> None:
    await dead_letter(console, *"aab")
    ports, queue = console.context.broker.administration, await console.api.broker.store.queues.by_name("orders")
    assert queue is not None
    limits = PageLimits(batch_size=1, max_batches=2)
    found = await group_dead_letters(replace(ports, page_limits=limits), queue)
    assert (found.count, found.is_complete, [group.count for group in found.groups]) == (2, False, [2])
    administration = replace(ports, page_limits=limits)
    console.application.state.context = replace(
        console.context, broker=replace(console.context.broker, administration=administration)
    )
    page = await console.page(DEAD)
    assert "3 dead letters" in page
    assert "they cover the first 2 of 3 dead letters" in page


@pytest.mark.parametrize("reason", ["plain", HOSTILE, "x" * 128])
async def test_a_reason_leads_to_its_messages(console: ConsoleServer, reason: str) -> None:
    await dead_letter(console, "other", reason)
    page = await console.page(DEAD)
    assert (reason, "1") in rows(page)
    assert "<script>alert" not in page
    listed = await console.get("/queues/orders/messages", params={"filter": reason_filter(reason)})
    assert re.findall(r"/messages/(\d+)\"", listed.text) == ["2"]


async def test_a_redrive_shows_its_plan_and_moves_what_it_shows(console: ConsoleServer) -> None:
    await dead_letter(console, "bad", "bad", "other")
    path = f"{DEAD}/redrive?filter=message.dead_letter_reason == 'bad'"
    page = await console.page(path)
    assert "2 messages with" in page
    assert await console.api.counts() == {"dead_lettered": 3}
    response = await step(console, path, await form_of(console, path))
    assert response.json() == {"done": 2, "is_finished": True}
    assert await console.api.counts() == {"dead_lettered": 1, "available": 2}


async def test_a_redrive_with_a_rate_goes_in_steps_and_stops_between_them(console: ConsoleServer) -> None:
    await dead_letter(console, *["bad"] * 5)
    path = f"{DEAD}/redrive?rate_per_second=1"
    fields = await form_of(console, path)
    assert fields["left"] == "5"
    response = await run_advancing(console.api.clock, step(console, path, fields))
    assert response.json() == {"done": 2, "is_finished": False}
    assert await console.api.counts() == {"dead_lettered": 3, "available": 2}


async def test_a_redrive_with_a_rate_moves_no_more_than_its_plan_shows(console: ConsoleServer) -> None:
    await dead_letter(console, *["bad"] * 3)
    fields = await form_of(console, f"{DEAD}/redrive?rate_per_second=10")
    response = await run_advancing(console.api.clock, step(console, f"{DEAD}/redrive", {**fields, "left": "1"}))
    assert response.json() == {"done": 1, "is_finished": True}
    assert await console.api.counts() == {"dead_lettered": 2, "available": 1}


async def test_a_redrive_with_a_slow_rate_moves_one_message_a_step(console: ConsoleServer) -> None:
    await dead_letter(console, "bad", "bad")
    fields = await form_of(console, f"{DEAD}/redrive?rate_per_second=0.1")
    response = await run_advancing(console.api.clock, step(console, f"{DEAD}/redrive", fields))
    assert response.json() == {"done": 1, "is_finished": False}


@pytest.mark.parametrize("action", ["redrive", "purge"])
async def test_a_form_without_a_plan_is_refused(console: ConsoleServer, action: str) -> None:
    await dead_letter(console, "bad")
    fields = {**await form_of(console, f"{DEAD}/{action}"), "name": "orders"}
    for until in ("", "soon", "-1", "9" * 19):
        answer = await step(console, f"{DEAD}/{action}", {**fields, "until": until})
        assert (answer.status_code, "This form has no plan." in answer.json()["fault"]) == (422, True)
    assert await console.api.counts() == {"dead_lettered": 1}


async def test_a_purge_and_its_undo_change_no_more_than_their_plans_show(console: ConsoleServer) -> None:
    await dead_letter(console, *["bad"] * 3)
    fields = {**await form_of(console, f"{DEAD}/purge"), "name": "orders"}
    assert (await step(console, f"{DEAD}/purge", {**fields, "left": "2"})).json() == {"done": 2, "is_finished": True}
    assert await console.api.counts() == {"dead_lettered": 1}
    fields = {**await form_of(console, f"{DEAD}/restore"), "left": "1"}
    assert (await step(console, f"{DEAD}/restore", fields)).json() == {"done": 1, "is_finished": True}
    assert await console.api.counts() == {"dead_lettered": 1, "available": 1}


async def test_an_undo_brings_back_what_the_purge_had_selected(console: ConsoleServer) -> None:
    await dead_letter(console, "other")
    await console.api.request_json("POST", f"{QUEUE}/purge", {})
    await dead_letter(console, "bad")
    path = f"{DEAD}/purge?filter=message.dead_letter_reason == 'bad'"
    (undo,) = re.findall(r'href="/console([^"]*/restore\?[^"]*)"', await console.page(path))
    await step(console, path, {**await form_of(console, path), "name": "orders"})
    await console.api.send(body=3)
    (message,) = await console.api.receive()
    await console.api.settle(message, "dead-letter", reason="later")
    await console.api.request_json("POST", f"{QUEUE}/purge", {})
    assert "1 message with" in await console.page(html.unescape(undo))


async def test_an_undo_leaves_what_an_earlier_purge_has_removed(console: ConsoleServer) -> None:
    await dead_letter(console, "earlier")
    await console.api.request_json("POST", f"{QUEUE}/purge", {})
    await dead_letter(console, "bad")
    await console.api.clock.advance(1)
    (undo,) = re.findall(r'href="/console([^"]*/restore\?[^"]*)"', await console.page(f"{DEAD}/purge"))
    await step(console, f"{DEAD}/purge", {**await form_of(console, f"{DEAD}/purge"), "name": "orders"})
    assert "1 message with" in await console.page(html.unescape(undo))


async def test_an_undo_leaves_messages_in_the_archive_that_are_too_large_now(console: ConsoleServer) -> None:
    await dead_letter(console, "bad", body="x" * 5000)
    await dead_letter(console, "bad")
    await console.api.request_json("POST", f"{QUEUE}/purge", {})
    await console.api.request_json("PUT", QUEUE, {"max_message_bytes": 2000})
    assert "1 message with" in await console.page(f"{DEAD}/restore")
    fields = await form_of(console, f"{DEAD}/restore")
    assert (await step(console, f"{DEAD}/restore", fields)).json() == {"done": 1, "is_finished": True}


async def test_a_message_that_fails_again_is_not_moved_twice(console: ConsoleServer) -> None:
    await dead_letter(console, "bad", "bad")
    fields = await form_of(console, f"{DEAD}/redrive")
    await console.api.clock.advance(1)
    await step(console, f"{DEAD}/redrive", {**fields, "left": "1"})
    (received,) = await console.api.receive()
    await console.api.settle(received, "dead-letter", reason="bad again")
    response = await step(console, f"{DEAD}/redrive", {**fields, "left": ""})
    assert response.json() == {"done": 1, "is_finished": False}
    assert rows(await console.page(DEAD)) == [("bad again", "1")]


async def test_a_redrive_to_another_queue(console: ConsoleServer) -> None:
    await dead_letter(console, "bad")
    await console.api.request("PUT", "/queues/repaired", {})
    path = f"{DEAD}/redrive?to_queue=repaired"
    await step(console, path, await form_of(console, path))
    assert (await console.api.counts(), await console.api.counts("repaired")) == ({}, {"available": 1})


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("filter=message.x ==", 422, "filter"),
        ("to_queue=missing", 404, "to_queue"),
        ("rate_per_second=fast", 422, "rate_per_second"),
        ("rate_per_second=0.001", 422, "rate_per_second"),
    ],
)
async def test_a_fault_is_shown_at_its_field(console: ConsoleServer, query: str, status: int, field: str) -> None:
    await dead_letter(console, "bad")
    response = await console.get(f"{DEAD}/redrive?{query}")
    assert response.status_code == status
    assert f'id="fault-{field}"' in response.text
    name, _, value = query.partition("=")
    fields = {**await form_of(console, f"{DEAD}/redrive"), name: value}
    answer = await step(console, f"{DEAD}/redrive", fields)
    assert (answer.status_code, list(answer.json())) == (status, ["fault"])
    assert await console.api.counts() == {"dead_lettered": 1}


async def test_a_plan_says_how_many_messages_the_other_queue_takes(console: ConsoleServer) -> None:
    await dead_letter(console, "bad", "bad")
    await console.api.request("PUT", "/queues/small", {"max_messages": 1})
    assert "1 message with" in await console.page(f"{DEAD}/redrive?to_queue=small")


async def test_a_browser_without_scripts_goes_step_by_step(console: ConsoleServer) -> None:
    await dead_letter(console, "bad")
    fields = await form_of(console, f"{DEAD}/redrive")
    response = await console.http.post(f"/console{DEAD}/redrive", data=fields)
    assert (response.status_code, response.headers["location"]) == (303, f"/console{DEAD}/redrive?done=1")
    assert "1 moved." in await console.page(f"{DEAD}/redrive?done=1")


async def test_a_browser_without_scripts_goes_on_with_what_was_asked(console: ConsoleServer) -> None:
    await dead_letter(console, "bad")
    await console.api.request("PUT", "/queues/repaired", {})
    asked = {"filter": "message.dead_letter_reason == 'bad'", "to_queue": "repaired", "rate_per_second": "5"}
    fields = await form_of(console, f"{DEAD}/redrive?{urlencode(asked)}")
    response = await run_advancing(console.api.clock, console.http.post(f"/console{DEAD}/redrive", data=fields))
    following = dict(parse_qsl(response.headers["location"].partition("?")[2]))
    assert following == {**asked, "done": "1"}


async def test_a_purge_needs_the_name_of_the_queue(console: ConsoleServer) -> None:
    await dead_letter(console, "bad", "other")
    path = f"{DEAD}/purge?filter=message.dead_letter_reason == 'bad'"
    fields = await form_of(console, path)
    for name in ("", "order", "ORDERS"):
        response = await console.http.post(f"/console{DEAD}/purge", data={**fields, "name": name})
        assert response.status_code == 422
        assert 'id="fault-name"' in response.text
    assert await console.api.counts() == {"dead_lettered": 2}
    response = await step(console, path, {**fields, "name": "orders"})
    assert response.json() == {"done": 1, "is_finished": True}
    assert rows(await console.page(DEAD)) == [("other", "1")]


async def test_a_purge_leaves_what_came_after_its_plan(console: ConsoleServer) -> None:
    await dead_letter(console, "bad")
    fields = await form_of(console, f"{DEAD}/purge")
    await console.api.clock.advance(1)
    await dead_letter(console, "new")
    await step(console, f"{DEAD}/purge", {**fields, "left": "", "name": "orders"})
    assert rows(await console.page(DEAD)) == [("new", "1")]


async def test_a_purge_is_undone(console: ConsoleServer) -> None:
    await dead_letter(console, "bad", "bad")
    page = await console.page(f"{DEAD}/purge")
    (undo,) = re.findall(r'href="/console([^"]*/restore\?[^"]*)"', page)
    await step(console, f"{DEAD}/purge", {**await form_of(console, f"{DEAD}/purge"), "name": "orders"})
    assert await console.api.counts() == {}
    path = html.unescape(undo)
    assert "2 messages with" in await console.page(path)
    assert (await step(console, path, await form_of(console, path))).json() == {"done": 2, "is_finished": True}
    assert await console.api.counts() == {"available": 2}


async def test_an_undo_looks_back_an_hour_at_first(console: ConsoleServer) -> None:
    await dead_letter(console, "old", "new")
    await console.api.request("POST", f"{QUEUE}/purge", {"filter": "message.sequence_number == 1"})
    await console.api.clock.advance(3700)
    await console.api.request("POST", f"{QUEUE}/purge", {})
    assert "1 message with" in await console.page(f"{DEAD}/restore")
    response = await console.get(f"{DEAD}/restore?since=yesterday")
    assert response.status_code == 422
    assert 'id="fault-since"' in response.text


async def test_a_queue_without_archive_offers_no_undo(console: ConsoleServer) -> None:
    await console.api.request("PUT", QUEUE, {"archive_retention_seconds": 0})
    await dead_letter(console, "bad")
    assert "Undo" not in await console.page(DEAD)
    assert "cannot be undone" in await console.page(f"{DEAD}/purge")


async def test_what_a_key_may_not_do_is_not_offered_and_refused(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    for queue in ("orders", "other"):
        await api.request("PUT", f"/queues/{queue}", {}, headers=everything)
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE))
    page = await console_with_keys.page(DEAD)
    assert ("Redrive" in page, "Purge" in page) == (False, False)
    for action in ("redrive", "purge", "restore"):
        assert (await console_with_keys.get(f"{DEAD}/{action}")).status_code == 403
        fields = {"csrf_token": token_of(page), "name": "orders", "until": "1"}
        assert (await step(console_with_keys, f"{DEAD}/{action}", fields)).status_code == 403


async def test_a_redrive_to_another_queue_needs_the_right_to_send_to_it(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    for queue in ("orders", "other"):
        await api.request("PUT", f"/queues/{queue}", {}, headers=everything)
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, Right.MANAGE))
    fields = {**await form_of(console_with_keys, f"{DEAD}/redrive"), "to_queue": "other"}
    assert (await step(console_with_keys, f"{DEAD}/redrive", fields)).status_code == 403
