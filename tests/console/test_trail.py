"""The trail of a message has all messages with its id, those made from it, those that answer it, and those of its trace."""

import html
import re
from dataclasses import replace
from typing import Any

import pytest

from app.console.formats import format_time
from app.console.trail_filter import trail_filter
from app.console.trail_search import ARCHIVE_PART, PAGE_SIZE
from app.domain.access import Right
from app.domain.archive import ArchivedMessage
from app.domain.instant import SECOND
from app.domain.message import MAX_ID_LENGTH
from tests.brokers import ChangedStore
from tests.console.console_server import ConsoleServer

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
HOSTILE = 'a" || true || "\\<script>'


def rows(page: str) -> list[dict[str, str]]:
    """What each step shows, by the heads of the columns, in order."""
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', page)
    cells = [
        re.findall(r"<t[dh].*?</t[dh]>", row, re.DOTALL)
        for row in re.findall(r"<tr[^>]*>\s*<td.*?</tr>", page, re.DOTALL)
    ]
    return [dict(zip(heads, map(text, row), strict=True)) for row in cells]


def text(cell: str) -> str:
    return html.unescape(" ".join(re.sub(r"<[^>]*>", " ", cell).split()))


def steps(page: str) -> list[tuple[str, str]]:
    """The queue and the relation of each message, in order."""
    return [(row["Queue"], row["It"]) for row in rows(page)]


async def test_messages_that_belong_together_are_found_in_all_queues(console: ConsoleServer) -> None:
    await console.api.send("z", body=1, message_id="order-1")
    await console.api.clock.advance(1)
    await console.api.send("a", body=2, message_id="order-1/0")
    await console.api.clock.advance(1)
    await console.api.send("m", body=3, correlation_id="order-1")
    await console.api.clock.advance(1)
    await console.api.send("b", body=4, message_id="z/order-1/0")
    await console.api.send("m", body=5, message_id="order-10")
    page = await console.page("/trail?id=order-1")
    assert steps(page) == [
        ("z", "has this id"),
        ("a", "was made from it"),
        ("m", "names it as its correlation"),
        ("b", "was made from it"),
    ]


@pytest.mark.parametrize("wanted", [TRACE, TRACEPARENT])
async def test_messages_of_a_trace_are_found(console: ConsoleServer, wanted: str) -> None:
    headers = {"traceparent": TRACEPARENT}
    await console.api.request_json("POST", "/queues/orders/messages", {"body": 1}, headers=headers)
    await console.api.send(body=2)
    assert steps(await console.page(f"/trail?id={wanted}")) == [("orders", "shares the trace")]


async def test_a_long_trail_goes_on_with_the_next_page(console: ConsoleServer) -> None:
    for number in range(PAGE_SIZE + 1):
        await console.api.send("a" if number % 2 else "b", body=1, message_id=f"order-1/{number}")
    first = await console.page("/trail?id=order-1")
    (more,) = re.findall(r'rel="next" href="([^"]+)"', first)
    last = await console.page("/trail" + html.unescape(more))
    assert (len(steps(first)), len(steps(last))) == (PAGE_SIZE, 1)
    assert "Search further" not in last
    assert ("First page" in first, "First page" in last) == (False, True)


async def test_a_further_page_has_older_messages_of_later_queues(console: ConsoleServer) -> None:
    await console.api.send("b", body=1, message_id="order-1")
    for number in range(PAGE_SIZE + 1):
        await console.api.send("a", body=1, message_id=f"order-1/{number}")
    (more,) = re.findall(r'rel="next" href="([^"]+)"', await console.page("/trail?id=order-1"))
    last = await console.page("/trail" + html.unescape(more))
    assert steps(last) == [("b", "has this id"), ("a", "was made from it")]


async def test_a_search_stops_after_its_time_and_goes_on(console: ConsoleServer) -> None:
    for queue in ("a", "b"):
        await console.api.send(queue, body=1, message_id="order-1")
    hurry(console)
    first = (await console.get("/trail?id=order-1")).text
    assert steps(first) == [("a", "has this id")]
    (more,) = re.findall(r'rel="next" href="([^"]+)"', first)
    assert steps((await console.get("/trail" + html.unescape(more))).text) == [("b", "has this id")]


async def test_a_search_that_goes_on_in_a_deleted_queue_reads_the_whole_next_one(
    console: ConsoleServer,
) -> None:
    await console.api.send("b", body=1, message_id="order-1")
    assert steps(await console.page("/trail?id=order-1&queue=a&after=7")) == [("b", "has this id")]


async def test_queues_that_a_key_may_not_browse_are_not_searched(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    for queue in ("private", "shop.orders"):
        await api.send(queue, body=1, message_id="order-1")
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, patterns=("shop.*",)))
    page = await console_with_keys.page("/trail?id=order-1")
    assert steps(page) == [("shop.orders", "has this id")]
    assert "private" not in page


async def test_an_id_is_a_text_and_no_filter(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    await console.api.send(body=2, message_id=HOSTILE)
    response = await console.get("/trail", params={"id": HOSTILE})
    assert steps(response.text) == [("orders", "has this id")]
    assert "<script>" not in response.text.partition("<main")[2]
    assert (await console.get("/trail", params={"id": "x" * 5000})).status_code == 200
    assert (await console.get("/trail?id=x&after=y")).status_code == 422


@pytest.mark.parametrize("message_id", [" order-1", "order-1 ", "\u00a0order-1"])
async def test_an_id_that_begins_or_ends_with_a_space_is_followed(console: ConsoleServer, message_id: str) -> None:
    for made in (message_id, f"orders/{message_id}/0"):
        await console.api.send("orders", body=1, message_id=made)
    message = await console.page("/queues/orders/messages/1")
    (link,) = re.findall(r'href="/console(/trail\?id=[^"]+)"', message)
    relations = ["has this id", "was made from it"]
    assert [relation for _, relation in steps(await console.page(html.unescape(link)))] == relations


@pytest.mark.parametrize("typed", [" order-1 ", "order-1%20", "%09order-1"])
async def test_spaces_that_were_copied_with_an_id_do_no_harm(console: ConsoleServer, typed: str) -> None:
    await console.api.send("orders", body=1, message_id="order-1")
    assert steps(await console.page(f"/trail?id={typed}")) == [("orders", "has this id")]
    assert "Nothing was found" not in await console.page("/trail?id=%20%00")


async def test_the_report_is_linked_if_its_address_is_set(console: ConsoleServer) -> None:
    assert "peeklock-pipeline" in await console.page("/trail?id=order-1")
    console.application.state.context = replace(console.context, report_url="https://lake.example/report?a=1&b=2")
    page = await console.page("/trail?id=order-1")
    assert page.count('href="https://lake.example/report?a=1&amp;b=2"') == 2


async def test_the_longest_id_is_followed_in_every_script(console: ConsoleServer) -> None:
    wanted = "😀" * MAX_ID_LENGTH
    await console.api.send(body=1, message_id=wanted)
    response = await console.get("/trail", params={"id": wanted})
    assert steps(response.text) == [("orders", "has this id")]


def hurry(console: ConsoleServer) -> None:
    """Let every page take too long."""

    class Hurried:
        """A clock on which every look takes an hour."""

        def __init__(self) -> None:
            self.seconds = 0.0

        def __getattr__(self, name: str) -> object:
            return getattr(console.api.clock, name)

        def monotonic(self) -> float:
            self.seconds += 3600
            return self.seconds

    hurried = Hurried()
    administration = replace(console.context.broker.administration, clock=hurried)
    broker = replace(console.context.broker, clock=hurried, administration=administration)
    console.application.state.context = replace(console.context, broker=broker)


def take_archive_away(console: ConsoleServer, ended_before: object) -> None:
    """Let the trail read another archive."""
    store = console.context.broker.store
    changed: Any = ChangedStore(store, archive=ChangedStore(store.archive, ended_before=ended_before))
    administration = replace(console.context.broker.administration, store=changed)
    broker = replace(console.context.broker, administration=administration)
    console.application.state.context = replace(console.context, broker=broker)


# ---- messages that have ended ----------------------------------------------------------------------------------------


async def complete_first(console: ConsoleServer, queue: str = "orders") -> None:
    """Receive the next message of a queue and complete it, each a second after what was before."""
    await console.api.clock.advance(1)
    (message,) = await console.api.receive(queue)
    await console.api.clock.advance(1)
    assert (await console.api.settle(message, "complete", queue)).is_success


async def test_a_message_that_was_completed_is_found_with_the_instants_of_its_life(console: ConsoleServer) -> None:
    await console.api.send(body=1, message_id="order-1")
    sent = console.api.clock.now()
    await complete_first(console)
    page = await console.page("/trail?id=order-1")
    assert f'title="{format_time(sent + SECOND)}">after 1 s<' in page
    (row,) = rows(page)
    assert row == {
        "Sent": format_time(sent),
        "Queue": "orders",
        "Number": "1",
        "State": "completed",
        "It": "has this id",
        "First delivered": "after 1 s",
        "Ended": "after 2 s",
        "Message id": "order-1",
    }


async def test_a_message_in_a_queue_shows_when_it_was_delivered_first(console: ConsoleServer) -> None:
    await console.api.send(body=1, message_id="order-1")
    await console.api.send(body=2, message_id="order-1/0")
    await console.api.clock.advance(3)
    await console.api.receive()
    first, second = rows(await console.page("/trail?id=order-1"))
    assert (first["State"], first["First delivered"], first["Ended"]) == ("locked", "after 3 s", "–")
    assert (second["State"], second["First delivered"]) == ("available", "–")


async def test_ended_messages_stand_among_the_others_in_the_order_of_sending(console: ConsoleServer) -> None:
    await console.api.send("z", body=1, message_id="order-1")
    await complete_first(console, "z")
    await console.api.send("m", body=2, message_id="order-1/0")
    await console.api.clock.advance(1)
    await console.api.send("a", body=3, correlation_id="order-1")
    await complete_first(console, "a")
    page = await console.page("/trail?id=order-1")
    assert [(row["Queue"], row["State"], row["It"]) for row in rows(page)] == [
        ("z", "completed", "has this id"),
        ("m", "available", "was made from it"),
        ("a", "completed", "names it as its correlation"),
    ]
    assert (
        re.findall(r'<tr aria-current="true">.*?</tr>', page, re.DOTALL)[0].count("<strong>has this id</strong>") == 1
    )
    assert page.count('aria-current="true"') == 1


async def test_purged_and_expired_messages_are_found(console: ConsoleServer) -> None:
    await console.api.send(body=1, message_id="order-1", ttl_seconds=1)
    await console.api.advance_time(5)
    await console.api.send(body=1, message_id="order-1")
    await console.api.request_json("POST", "/queues/orders/purge", {"states": ["available"]})
    assert [row["State"] for row in rows(await console.page("/trail?id=order-1"))] == ["expired", "purged"]


async def test_ended_messages_of_a_trace_are_found(console: ConsoleServer) -> None:
    headers = {"traceparent": TRACEPARENT}
    await console.api.request_json("POST", "/queues/orders/messages", {"body": 1}, headers=headers)
    await complete_first(console)
    assert steps(await console.page(f"/trail?id={TRACE}")) == [("orders", "shares the trace")]


async def test_a_step_leads_to_its_message_and_to_its_history_if_the_queue_keeps_one(console: ConsoleServer) -> None:
    for queue, keeps_history in (("quiet", False), ("told", True)):
        await console.api.request_json("PUT", f"/queues/{queue}", {"history": keeps_history})
        await console.api.send(queue, body=1, message_id="order-1")
        await complete_first(console, queue)
    page = await console.page("/trail?id=order-1")
    links = re.findall(r'href="(/console/queues/[^"]+)"', page)
    assert links == [
        "/console/queues/quiet/messages/1",
        "/console/queues/told/messages/2#history-title",
        "/console/queues/told/messages/2",
    ]
    assert "completed it" in await console.page("/queues/told/messages/2")


async def test_a_message_of_a_deleted_queue_has_no_page(console: ConsoleServer) -> None:
    await console.api.send(body=1, message_id="order-1")
    await complete_first(console)
    await console.api.request("DELETE", "/queues/orders")
    await console.api.request_json("PUT", "/queues/orders", {"history": True})
    page = await console.page("/trail?id=order-1")
    assert [row["Queue"] for row in rows(page)] == ["orders deleted"]
    assert "/console/queues/orders/messages" not in page


async def test_a_long_trail_of_ended_messages_goes_on_with_the_next_page(console: ConsoleServer) -> None:
    await console.api.send("a", body=1, message_id="order-1")
    for number in range(PAGE_SIZE):
        await console.api.send("b", body=1, message_id=f"order-1/{number}")
    await console.api.request_json("POST", "/queues/b/purge", {"states": ["available"]})
    first = await console.page("/trail?id=order-1")
    (more,) = re.findall(r'rel="next" href="([^"]+)"', first)
    last = await console.page("/trail" + html.unescape(more))
    # The archive is searched from the newest message, and each page is in the order of sending.
    assert [row["Number"] for row in rows(first)] == ["1", *map(str, range(3, PAGE_SIZE + 2))]
    assert [row["Number"] for row in rows(last)] == ["2"]
    assert ("Search further" in last, "First page" in last) == (False, True)


async def test_a_search_of_the_archive_stops_after_its_time_and_goes_on(console: ConsoleServer) -> None:
    await console.api.send(body=1, message_id="order-1")
    for number in range(ARCHIVE_PART.batch_size):
        await console.api.send(body=1, message_id=f"other-{number}")
    await console.api.request_json("POST", "/queues/orders/purge", {"states": ["available"]})
    hurry(console)
    first = (await console.get("/trail?id=order-1")).text
    assert "Nothing was found so far." in first
    (more,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = (await console.get("/trail" + html.unescape(more))).text
    (more,) = re.findall(r'rel="next" href="([^"]+)"', second)
    assert (steps(second), "before=2" in more) == ([], True)
    assert steps((await console.get("/trail" + html.unescape(more))).text) == [("orders", "has this id")]


async def test_a_message_that_ends_during_the_search_is_shown_once(console: ConsoleServer) -> None:
    await console.api.send(body=1, message_id="order-1")
    (message,) = await console.api.receive()
    archive = console.context.broker.store.archive

    async def ended_before(before: int, limit: int) -> list[ArchivedMessage]:
        await console.api.settle(message, "complete")
        return await archive.ended_before(before, limit)

    take_archive_away(console, ended_before)
    assert [row["State"] for row in rows(await console.page("/trail?id=order-1"))] == ["completed"]


async def test_ended_messages_of_queues_that_a_key_may_not_browse_are_not_shown(
    console_with_keys: ConsoleServer,
) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    for queue in ("private", "shop.orders", "shop.old"):
        await api.send(queue, body=1, message_id="order-1")
        await complete_first(console_with_keys, queue)
    for queue in ("private", "shop.old"):
        await api.request("DELETE", f"/queues/{queue}")
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, patterns=("shop.*",)))
    page = await console_with_keys.page("/trail?id=order-1")
    assert [row["Queue"] for row in rows(page)] == ["shop.orders", "shop.old deleted"]
    assert "private" not in page


async def test_a_key_without_the_right_finds_nothing_and_reads_nothing(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    await api.send(body=1, message_id="order-1")
    await complete_first(console_with_keys)
    await console_with_keys.sign_in(await api.new_key(Right.SEND))
    take_archive_away(console_with_keys, None)
    page = await console_with_keys.page("/trail?id=order-1")
    assert (rows(page), "Search further" in page) == ([], False)


@pytest.mark.parametrize("before", ["x", "-1", "9" * 19])
async def test_a_place_that_is_none_is_refused(console: ConsoleServer, before: str) -> None:
    assert (await console.get(f"/trail?id=x&before={before}")).status_code == 422


def test_a_trace_is_searched_only_for_an_id_of_a_trace() -> None:
    assert trail_filter("order-1").trace is None
    assert trail_filter(TRACEPARENT).trace == TRACE
