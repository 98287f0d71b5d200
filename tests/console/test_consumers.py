"""The page of a queue lists its consumers, and the overview says which queues have one that is paused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from app.console.consumers import NO_CONSUMER, UNKNOWN
from tests.api.api_server import ApiServer
from tests.brokers import UnknownConsumers
from tests.console.console_server import ConsoleServer, open_console_server

WHY = "5 failures in a row; the last: The target answered 500."
TARGET = "https://shop.example/orders"
PAUSED = {"state": "paused", "reason": WHY, "target": TARGET}
SENTENCE = f"Calls of {TARGET} are paused: {WHY}"


@pytest.fixture
async def console() -> AsyncIterator[ConsoleServer]:
    """A console with an empty queue."""
    async with open_console_server() as console:
        await console.api.request_json("PUT", "/queues/orders", {})
        yield console


async def report(console: ConsoleServer, consumer: str = "web-1", **fields: Any) -> None:
    """Report a consumer of the queue."""
    await console.api.request_json("PUT", f"/queues/orders/consumers/{consumer}", fields)


async def test_the_page_of_a_queue_lists_its_consumers(console: ConsoleServer) -> None:
    await report(console, **PAUSED)
    await report(console, "web-2", state="receiving")
    page = await console.page("/queues/orders")
    for text in (
        'data-name>web-1<', f"data-target>{TARGET}<", "data-principal>anonymous<",
        f'data-state="paused">paused</span><span class="why">{WHY}<',
        'data-state="receiving">receiving</span><span class="why"><', SENTENCE,
    ):  # fmt: skip
        assert text in page
    assert NO_CONSUMER not in page


async def test_an_open_page_gets_the_consumers_of_now(console: ConsoleServer) -> None:
    assert (await console.get("/queues/orders/plots")).json()["consumers"] == {"note": NO_CONSUMER, "rows": []}
    await report(console, **PAUSED)
    answer = (await console.get("/queues/orders/plots")).json()
    (row,) = answer["consumers"]["rows"]
    assert (row["name"], row["state"], row["reason"], row["target"]) == ("web-1", "paused", WHY, TARGET)
    assert answer["figures"]["attention"] == SENTENCE
    await report(console, state="receiving")
    answer = (await console.get("/queues/orders/plots")).json()
    assert (answer["consumers"]["rows"][0]["state"], answer["figures"]["attention"]) == ("receiving", "")


async def test_the_overview_names_a_queue_with_a_consumer_that_is_paused(console: ConsoleServer) -> None:
    await report(console, **PAUSED)
    page = await console.page()
    assert 'data-row="orders" data-attention="consumer_paused"' in page
    assert SENTENCE in page
    assert "1 needs attention" in page
    await report(console, state="receiving")
    assert "data-attention-count hidden" in await console.page()


async def test_a_consumer_whose_report_has_ended_is_not_shown(console: ConsoleServer) -> None:
    await report(console, **PAUSED, ttl_seconds=6)
    assert SENTENCE in await console.page()
    await console.sample()
    assert SENTENCE not in await console.page()
    assert NO_CONSUMER in await console.page("/queues/orders")


async def test_texts_of_a_consumer_are_escaped(console: ConsoleServer) -> None:
    await report(console, state="paused", reason="<script>alert(1)</script>", target="https://shop.example/<b>")
    for path in ("", "/queues/orders"):
        page = await console.page(path)
        assert "<script>alert" not in page
        assert "<b>" not in page.partition("data-orders")[0].replace("<b data-amount", "")
        assert "&lt;script&gt;alert(1)" in page


async def test_while_consumers_are_not_known_the_page_says_so(console: ConsoleServer) -> None:
    await report(console, **PAUSED)
    api = console.api
    without_redis = ConsoleServer(ApiServer(replace(api.broker, consumers=UnknownConsumers()), api.clock, None))
    page = await without_redis.page("/queues/orders")
    assert UNKNOWN in page
    assert NO_CONSUMER not in page
    plots = (await without_redis.get("/queues/orders/plots")).json()
    assert plots["consumers"] == {"note": UNKNOWN, "rows": []}
    assert SENTENCE not in await without_redis.page()
