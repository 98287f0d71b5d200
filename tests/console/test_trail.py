"""The trail of a message has all messages with its id, those made from it, those that answer it, and those of its trace."""

import html
import re
from dataclasses import replace

import pytest

from app.console.trail import PAGE_SIZE, trail_filter
from app.domain.access import Right
from app.domain.message import MAX_ID_LENGTH
from tests.console.console_server import ConsoleServer

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
HOSTILE = 'a" || true || "\\<script>'


def steps(page: str) -> list[tuple[str, str]]:
    """The queue and the relation of each message, in order."""
    rows = re.findall(r"<tr>\s*<td>.*?</tr>", page, re.DOTALL)
    return [(row[0], row[-2]) for row in (re.findall(r">\s*([^<>]+?)\s*</(?:td|a)>", found) for found in rows)]


async def test_messages_that_belong_together_are_found_in_all_queues(console: ConsoleServer) -> None:
    await console.api.send("z", body=1, message_id="order-1")
    await console.api.clock.advance(1)
    await console.api.send("a", body=2, message_id="order-1/0")
    await console.api.clock.advance(1)
    await console.api.send("m", body=3, correlation_id="order-1")
    await console.api.send("m", body=4, message_id="order-10")
    page = await console.page("/trail?id=order-1")
    assert steps(page) == [("z", "has this id"), ("a", "was made from it"), ("m", "names it as its correlation")]


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
    broker = replace(console.context.broker, clock=hurried)
    console.application.state.context = replace(console.context, broker=broker)
    first = (await console.get("/trail?id=order-1")).text
    assert steps(first) == [("a", "has this id")]
    (more,) = re.findall(r'rel="next" href="([^"]+)"', first)
    assert steps((await console.get("/trail" + html.unescape(more))).text) == [("b", "has this id")]


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


def test_a_trace_is_searched_only_for_an_id_of_a_trace() -> None:
    assert trail_filter("order-1").trace is None
    assert trail_filter(TRACEPARENT).trace == TRACE
