"""The overview plots all messages in, out, failed and waiting over spans of 15 minutes to 24 hours, with one sentence."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from app.console.activity import SAMPLE_SECONDS, SAMPLES
from app.console.charts import line_path
from app.console.overview import ROWS_OF_A_PART
from app.console.spans import SPANS, Span, SpanPoints, SpanTimes, span_of
from app.console.total_plots import ALONE
from app.domain.access import Right
from tests.brokers import ChangedStore
from tests.console.console_server import ConsoleServer
from tests.console.shared_directory import Directory
from tests.console.test_overview import cells, events, names
from tests.walks import for_each


def sentence(page: str) -> str:
    """The sentence above the plots."""
    (found,) = re.findall(r"data-sentence>([^<]*)<", page)
    return found


def legend(page: str) -> dict[str, str]:
    """The amounts of the legends."""
    return dict(re.findall(r'data-amount="(\w+)">([^<]*)<', page))


def path(page: str, name: str) -> str:
    """The shape of a line."""
    (found,) = re.findall(rf'data-line="{name}" d="([^"]*)"', page)
    return found


async def test_the_sentence_and_the_legends_count_what_the_lines_show(console: ConsoleServer) -> None:
    api = console.api
    for body in range(5):
        await api.send(body=body)
    await api.send("other", body=1)
    first, second, *_ = await api.receive(max_messages=3)
    await api.settle(first, "complete")
    await api.settle(second, "abandon")
    page = await console.page()
    assert sentence(page) == "In the last 5 s, since this server process started: 6 in, 1 out, 1 failed. 4 wait now."
    assert legend(page) == {"sent": "6", "completed": "1", "failed": "1", "waiting": "4"}
    page = await console.page()
    assert sentence(page).startswith("In the last 10 s,")
    assert path(page, "sent").count("L") == 1


async def test_the_longest_sums_are_those_of_whole_points(console: ConsoleServer, directory: Directory) -> None:
    await console.api.request("PUT", "/queues/orders", {})
    queue = await console.api.broker.store.queues.by_name("orders")
    assert queue is not None
    directory.add_windows({queue.id: {"sent": 2, "completed": 1}})
    for _ in range(SAMPLES + 10):
        await console.sample()
    for span in SPANS:
        page = (await console.get(f"?span={span.name}")).text
        shown = min(SAMPLES + 10, span.samples * span.points)
        amounts = legend(page)
        assert (amounts["sent"], amounts["completed"]) == (str(2 * shown), str(shown))
        assert f"{2 * shown} in, {shown} out, 0 failed. 0 wait now." in sentence(page)
    assert sentence((await console.get()).text).startswith("In the last 15 minutes:")


@for_each("span", SPANS, ids=lambda span: span.name)
def test_the_points_of_a_span_add_up_and_the_oldest_are_dropped(span: Span) -> None:
    times, points = SpanTimes(), SpanPoints(span)
    total = span.samples * span.points + span.samples // 2 + 1
    for sample in range(total):
        points.add({"sent": 1, "waiting": sample}, times.begins_point(span))
        times.add(sample * SAMPLE_SECONDS)
    sent = points.series("sent")
    assert (len(sent), len(times.of(span))) == (span.points, span.points)
    assert sent[-1] == times.samples_of_newest(span) == (total - 1) % span.samples + 1
    assert set(sent[:-1]) == {span.samples}
    assert points.series("waiting")[-1] == total - 1
    assert {later - earlier for earlier, later in pairwise(times.of(span)[:-1])} == {span.point_seconds}
    assert span.samples * span.points * SAMPLE_SECONDS == {"15m": 900, "1h": 3600, "6h": 21600, "24h": 86400}[span.name]


def test_an_unknown_span_is_the_shortest() -> None:
    assert span_of("<script>") is SPANS[0]


async def test_the_page_keeps_its_span(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    page = await console.page("?span=6h&sort=-name")
    assert 'aria-current="true">6 hours</a>' in page
    assert "sort=-name&amp;find=&amp;span=6h" in page.partition("data-live")[2][:60]
    assert "<script>" not in await console.page("?span=<script>")


async def test_a_visitor_sees_the_sums_of_the_queues_that_it_may_browse(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    for queue in ("orders.eu", "orders.us", "payments"):
        await api.request("POST", f"/queues/{queue}/messages", {"body": 1}, headers=everything)
    for patterns, amount in ((("orders.*",), "2"), (("payments",), "1"), (("*",), "3")):
        await console_with_keys.sign_in(await api.new_key(Right.BROWSE, patterns=patterns, principal=patterns[0]))
        found = legend(await console_with_keys.page())
        assert (found["sent"], found["waiting"]) == (amount, amount)


async def test_visitors_with_other_rights_share_no_sums_of_one_sample(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    for queue in ("orders", "payments", "payments"):
        await api.request("POST", f"/queues/{queue}/messages", {"body": 1}, headers=everything)
    await console_with_keys.sample()
    for queue, amount in (("orders", "1"), ("payments", "2"), ("*", "3")):
        await console_with_keys.sign_in(await api.new_key(Right.BROWSE, patterns=(queue,), principal=queue))
        assert legend((await console_with_keys.get()).text)["sent"] == amount


async def test_a_deleted_queue_leaves_the_sums(console: ConsoleServer) -> None:
    for queue in ("orders", "other"):
        await console.api.send(queue, body=1)
    await console.page()
    await console.api.request("DELETE", "/queues/other")
    assert legend(await console.page())["sent"] == "1"


async def test_open_views_get_the_plots_of_their_page(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    await console.page()

    async def between(number: int) -> None:
        if number == 1:
            await console.api.send(body=2)
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(console.sample()))

    first, second = await events(console, 2, between, b"span=1h")
    assert [event["plots"]["span"] for event in (first, second)] == ["1h", "1h"]
    assert [event["plots"]["lines"][0]["amount"] for event in (first, second)] == ["1", "2"]
    assert second["plots"]["sentence"].endswith("2 in, 0 out, 0 failed. 2 wait now.")


async def test_figures_stay_those_of_one_moment_while_a_page_is_made(console: ConsoleServer) -> None:
    for number in range(2 * ROWS_OF_A_PART + 1):
        await console.api.send(f"queue-{number:03d}", body=1)
    await console.sample()

    async def change() -> None:
        for number in range(20):
            await console.api.send(f"queue-{number:03d}", body=2)
            await console.sample()

    changing = asyncio.ensure_future(change())
    while not changing.done():
        page = (await console.get()).text
        available = [int(cells(page, name)[3]) for name in names(page)]
        (total,) = re.findall(r'data-total="available">([^<]*)<', page)
        amounts = legend(page)
        assert int(total) == sum(available) == int(amounts["waiting"])
        assert f"{amounts['sent']} in, 0 out, 0 failed. {amounts['waiting']} wait now." in sentence(page)
    await changing


async def test_the_page_of_a_queue_says_in_its_sentence_what_its_figures_say(console: ConsoleServer) -> None:
    """A message arrives before each read of the counts."""
    await console.api.send(body=1)
    broker, store = console.context.broker, console.context.broker.store

    async def counts(*arguments: Any) -> Any:
        await console.api.send(body=2)
        return await store.queues.counts(*arguments)

    changed: Any = ChangedStore(store, queues=ChangedStore(store.queues, counts=counts))
    administration = replace(broker.administration, store=changed)
    console.application.state.context = replace(console.context, broker=replace(broker, administration=administration))
    page = (await console.get("/queues/orders")).text
    figures = dict(re.findall(r'data-count="(\w+)">([^<]*)<', page))
    assert f"{figures['available']} messages are available" in page.partition("data-explanation>")[2][:80]
    answer = (await console.get("/queues/orders/plots")).json()["figures"]
    assert answer["explanation"].startswith(f"{answer['counts']['available']} messages are available")
    assert int(answer["counts"]["available"]) > int(figures["available"])


async def test_a_span_with_events_of_one_server_alone_says_so(console: ConsoleServer, directory: Directory) -> None:
    await console.api.send(body=1)
    assert ALONE not in await console.page()
    directory.answer = None
    assert ALONE in await console.page()


@pytest.mark.parametrize(
    ("times", "values", "expected"),
    [
        ([], [], ""),
        ([10.0], [5], "M1000 6h0"),
        ([0.0, 5.0, 10.0], [0, 5, 10], "M0 100L500 53L1000 6h0"),
        ([0.0, 1.0, 2.0, 8.0, 9.0, 10.0], [0, 0, 0, 0, 0, 10], "M0 100L100 100L200 100M800 100L900 100L1000 6h0"),
    ],
)
def test_a_line_is_not_drawn_where_nothing_is_known(times: list[float], values: list[float], expected: str) -> None:
    highest = max(values, default=0) if len(values) != 1 else 5
    assert line_path(times, values, 0, 10, highest) == expected
