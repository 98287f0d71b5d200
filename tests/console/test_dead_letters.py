"""Dead letters are grouped by reason, drawn by time and listed. Many are redriven, purged and restored by a plan, in steps."""

import base64
import html
import re
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import httpx
import pytest

from app.broker.administration.dead_letter_groups import DeadLetterGroups, group_dead_letters
from app.broker.administration.page_limits import PageLimits
from app.console.activity import SAMPLE_SECONDS
from app.console.dead_letters import reason_filter
from app.console.messages import PAGE_SIZE
from app.console.trend import trend_of
from app.domain.access import Right
from app.domain.instant import DAY, HOUR, from_seconds
from app.wire.times import to_wire
from tests.brokers import ChangedStore
from tests.console.console_server import ConsoleServer, token_of
from tests.virtual_clock import run_advancing
from tests.walks import for_each

QUEUE, DEAD = "/queues/orders", "/queues/orders/dead-letters"
HOSTILE = "\"'\\ <script>alert(1)</script>\n\u0001é😀"


async def dead_letter(console: ConsoleServer, *reasons: str, **message: Any) -> None:
    """Dead-letter a message for each reason."""
    for reason in reasons:
        await console.api.send(**({"body": reason} | message if "body_base64" not in message else message))
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
    found = re.findall(
        r'<th scope="row"><a [^>]*>([^<]*)</a></th>\s*<td class="number" data-label="Messages">([^<]*)</td>', page
    )
    return [(html.unescape(reason), count) for reason, count in found]


def letters(page: str) -> list[int]:
    """The numbers of the dead letters in the list."""
    return [int(number) for number in re.findall(r'<th scope="row" class="number"><a [^>]*>(\d+)</a>', page)]


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


async def test_a_reason_leads_into_the_list(console: ConsoleServer) -> None:
    await dead_letter(console, "other", HOSTILE, "other")
    groups = (await console.page(DEAD)).partition("By reason")[2]
    links = re.findall(r'<th scope="row"><a href="/console([^"]*)#list-title"', groups)
    assert [letters(await console.page(html.unescape(link))) for link in links] == [[1, 3], [2]]
    assert 'aria-current="true">other</a>' in await console.page(html.unescape(links[0]))


async def test_the_list_has_the_time_reason_subject_and_first_line(console: ConsoleServer) -> None:
    await console.api.request("PUT", QUEUE, {})
    text = base64.b64encode(f"\n  first line of {'x' * 400}\nsecond".encode()).decode()
    binary = base64.b64encode(b"\x00\x01" + bytes(1022)).decode()
    await dead_letter(console, "a", body_base64=text, subject="order", content_type="text/plain")
    await dead_letter(console, "b", body_base64=binary)
    await dead_letter(console, "c", body_base64="")
    page = await console.page(DEAD)
    found = re.findall(r'<td class="(?:mid )?cut(?: code)?" [^>]*>([^<]*)</td>', page)
    assert [found[0:2], found[3:6], found[6:9]] == [["a", "order"], ["b", "–", "binary, 1.0 KiB"], ["c", "–", "–"]]
    assert found[2].startswith("first line of xxx")
    assert (len(found[2]) < 200, found[2].endswith("…"), "second" in page) == (True, True, False)
    since = to_wire(console.api.clock.now() - from_seconds(SAMPLE_SECONDS))
    assert f'<td class="mid" data-label="Dead-lettered"><time datetime="{since}" data-ago>' in page


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("filter=message.subjekt == 'a'", "Did you mean `subject`?"),
        (f"filter={'x' * 1025}", "fault-filter"),
        ("cursor=x", "This page does not exist."),
    ],
)
async def test_a_fault_of_the_filter_is_shown_where_it_is(console: ConsoleServer, query: str, fault: str) -> None:
    await dead_letter(console, "a")
    response = await console.get(f"{DEAD}?{query}")
    assert (response.status_code, fault in response.text) == (422, True)


async def test_pages_of_the_list_follow_each_other(console: ConsoleServer) -> None:
    await dead_letter(console, *["a"] * (PAGE_SIZE + 1))
    (following,) = re.findall(r'rel="next" href="([^"]*)"', await console.page(DEAD))
    assert letters(await console.page(DEAD + html.unescape(following))) == [PAGE_SIZE + 1]


async def test_the_trend_counts_all_dead_letters_by_when_they_came(console: ConsoleServer) -> None:
    await dead_letter(console, "a", "b")
    await console.api.clock.advance(30 * 60)
    await dead_letter(console, "a", "a", "a")
    page = await console.page(DEAD)
    assert "Dead-lettered per minute" in page
    assert "5 came in the last 48 minutes, at most 3 per minute." in page
    assert re.findall(r"<title>[^<]*UTC: (\d+)</title>", page) == ["2", "3"]


@for_each(
    ("age", "interval", "sentence"),
    [
        (0, "minute", "2 came in the last 48 minutes, at most 2 per minute."),
        (HOUR, "5 minutes", "2 came in the last 4 hours, at most 1 per 5 minutes."),
        (10 * HOUR, "15 minutes", "2 came in the last 12 hours, at most 1 per 15 minutes."),
        (40 * DAY, "day", "2 came in the last 48 days, at most 1 per day."),
        (400 * DAY, "week", "1 came in the last 48 weeks, at most 1 per week. 1 came before."),
    ],
)
def test_the_intervals_reach_back_to_the_oldest_dead_letter(age: int, interval: str, sentence: str) -> None:
    now = 20_000 * DAY
    minutes = {now - age: 1, now: 1} if age else {now: 2}
    trend = trend_of(DeadLetterGroups((), minutes, 2, is_complete=True), now)
    assert trend is not None
    assert (trend.interval, trend.sentence) == (interval, sentence)
    assert sum(bar.count for bar in trend.bars) == (1 if "before" in sentence else 2)


async def test_the_number_the_groups_and_the_trend_are_those_of_one_read(console: ConsoleServer) -> None:
    """A dead letter is redriven after the counts of the queue were read, and before the dead letters are."""
    await dead_letter(console, "a", "a", "b")
    broker, store = console.context.broker, console.context.broker.store

    async def redriven_before(*arguments: Any) -> Any:
        await console.api.request(
            "POST", f"{QUEUE}/dead-letter/redrive", {"filter": "message.dead_letter_reason == 'b'"}
        )
        return await store.browse_metadata(*arguments)

    changed: Any = ChangedStore(store, browse_metadata=redriven_before)
    administration = replace(broker.administration, store=changed)
    console.application.state.context = replace(console.context, broker=replace(broker, administration=administration))
    page = await console.page(DEAD)
    assert ("2 dead letters" in page, rows(page)) == (True, [("a", "2")])
    assert "2 came in the last" in page


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
    fields = {**await form_of(console, f"{DEAD}/{action}"), **({"name": "orders"} if action == "purge" else {})}
    for until in ("", "soon", "-1", "9" * 19):
        answer = await step(console, f"{DEAD}/{action}", {**fields, "until": until})
        assert (answer.status_code, "This form has no plan." in answer.json()["fault"]) == (422, True)
    assert await console.api.counts() == {"dead_lettered": 1}


@pytest.mark.parametrize("action", ["redrive", "purge", "restore"])
async def test_a_step_without_a_number_of_messages_is_refused(console: ConsoleServer, action: str) -> None:
    await dead_letter(console, "bad")
    fields = {**await form_of(console, f"{DEAD}/{action}"), **({"name": "orders"} if action == "purge" else {})}
    for left in ("0", "-1", "all", "1.5", "9" * 19):
        answer = await step(console, f"{DEAD}/{action}", {**fields, "left": left})
        assert (answer.status_code, "This form has no plan." in answer.json()["fault"]) == (422, True), left
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


async def test_a_browser_without_scripts_goes_on_with_what_was_wanted(console: ConsoleServer) -> None:
    await dead_letter(console, "bad")
    await console.api.request("PUT", "/queues/repaired", {})
    wanted = {"filter": "message.dead_letter_reason == 'bad'", "to_queue": "repaired", "rate_per_second": "5"}
    fields = await form_of(console, f"{DEAD}/redrive?{urlencode(wanted)}")
    response = await run_advancing(console.api.clock, console.http.post(f"/console{DEAD}/redrive", data=fields))
    following = dict(parse_qsl(response.headers["location"].partition("?")[2]))
    assert following == {**wanted, "done": "1"}


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


@pytest.mark.parametrize("action", ["redrive", "purge", "restore"])
async def test_a_field_that_is_unknown_or_given_twice_is_refused(console: ConsoleServer, action: str) -> None:
    await dead_letter(console, "bad", "other")
    fields = {**await form_of(console, f"{DEAD}/{action}"), **({"name": "orders"} if action == "purge" else {})}
    for wrong in ({"filtre": "false"}, {"filter": ["false", ""]}):
        response = await console.http.post(f"/console{DEAD}/{action}", data={**fields, **wrong})
        assert (response.status_code, "form has no field" in response.text or "twice" in response.text) == (422, True)
    assert await console.api.counts() == {"dead_lettered": 2}


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
