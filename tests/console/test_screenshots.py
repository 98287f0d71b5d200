"""The screenshots of the documentation. `python3 dev.py test tests/console/test_screenshots.py --screenshots` makes them again.

The server has a clock of its own, so fifteen minutes of real traffic take a few seconds.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from app.console.activity import SAMPLES
from app.domain.instant import SECOND
from app.http.request_id import RequestIdMiddleware
from tests.console.browser import open_browser, open_screen
from tests.console.console_server import ConsoleServer

pytestmark = pytest.mark.full

IMAGES = Path(__file__).parents[2] / "docs/images"
WIDTH, HEIGHT = 1280, 800
MIN_BYTES = 20_000
"""An empty page has fewer."""

FEW_SAMPLES = 20
"""Traffic for images that are not kept: the pages show the same things in smaller numbers."""

PAGES = {
    "console-queues": ("", "light"),
    "console-queues-dark": ("", "dark"),
    "console-queue": ("/queues/orders", "light"),
    "console-message": ("/queues/orders/messages/{dead}", "light"),
    "console-dead-letters": ("/queues/orders/dead-letters", "light"),
    "console-topic": ("/topics/shop", "light"),
    "console-state": ("/states/customer.17", "light"),
}
"""The images, each with its page and its theme."""

QUEUES = ("orders", "invoices", "emails", "thumbnails", "search-index", "webhooks", "payments")
REASONS = ("address is unknown", "article is sold out")


async def test_screenshots_of_the_main_pages(console: ConsoleServer, pytestconfig: pytest.Config) -> None:
    images: dict[str, bytes] = {}
    is_kept = pytestconfig.getoption("--screenshots")
    dead = await fill(console, SAMPLES if is_kept else FEW_SAMPLES)
    async with serve(console) as url, open_browser() as browser:
        for name, (path, theme) in PAGES.items():
            async with open_screen(browser, url, width=WIDTH, height=HEIGHT, theme=theme) as screen:
                # The pages compare times with the clock of the browser.
                await screen.page.clock.set_fixed_time(datetime.fromtimestamp(console.api.clock.now() / SECOND, UTC))
                page = await screen.open(path.format(dead=dead))
                image = await page.screenshot()
                assert size_of(image) == (WIDTH, HEIGHT)
                assert len(image) > MIN_BYTES
                assert await page.locator("h1").is_visible()
                images[name] = image
    if is_kept:
        for name, image in images.items():
            IMAGES.joinpath(f"{name}.png").write_bytes(image)


@pytest.mark.parametrize("name", PAGES)
def test_each_screenshot_is_shown_in_the_documentation(name: str) -> None:
    assert size_of(IMAGES.joinpath(f"{name}.png").read_bytes()) == (WIDTH, HEIGHT)
    texts = [path.read_text() for path in (IMAGES.parent / "console.md", IMAGES.parents[1] / "README.md")]
    assert any(f"images/{name}.png" in text for text in texts)


def size_of(image: bytes) -> tuple[int, int]:
    """Return the width and height of a PNG (its first chunk, PNG specification 11.2.2)."""
    return struct.unpack(">II", image[16:24])


# ---- the server and its traffic --------------------------------------------------------------------------------------


@asynccontextmanager
async def serve(console: ConsoleServer) -> AsyncIterator[str]:
    """Serve a console on a free port, and yield its URL."""
    server = uvicorn.Server(
        uvicorn.Config(RequestIdMiddleware(console.application), interface="asgi3", lifespan="off", log_level="error")
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.ensure_future(server.serve([listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        console.activity.close()
        with suppress(asyncio.CancelledError):
            await serving


async def fill(console: ConsoleServer, samples: int) -> int:
    """Let traffic pass for this many samples. Return the number of a dead letter of queue `orders`."""
    api, chance = console.api, random.Random(17)
    for queue in QUEUES:
        await api.request_json("PUT", f"/queues/{queue}", {"history": queue == "orders"})
    await add_topic(api)
    await add_state(api)
    await api.send("orders", body={"order": 1})
    await api.settle(*await api.receive("orders"), "dead-letter", "orders", reason=REASONS[0])
    for sample in range(samples):
        for queue in chance.sample(QUEUES, 4):
            await pass_messages(console, queue, chance)
        if sample > samples // 3:
            await api.send("thumbnails", body={"picture": sample})
        await console.sample()
    await api.request_json("PATCH", "/queues/webhooks", {"status": "receive_disabled"})
    for worker in range(4):
        await api.send(body={"order": worker})
        await api.receive(receiver_id=f"worker-{worker}")
    await console.sample()
    dead = await api.request_json("GET", "/queues/orders/messages?state=dead_lettered&limit=1")
    number: int = dead["items"][0]["sequence_number"]
    return number


async def pass_messages(console: ConsoleServer, queue: str, chance: random.Random) -> None:
    """Send some messages, and settle as many, each in some way."""
    api, count = console.api, chance.randint(1, 5)
    order: dict[str, Any] = {"order": chance.randint(1000, 9999), "items": [{"article": "A-17", "number": 2}]}
    messages = [{"body": order, "subject": "order.placed", "properties": {"region": "eu"}}] * count
    await api.request_json("POST", f"/queues/{queue}/messages/batch", {"messages": messages})
    for message in await api.receive(queue, max_messages=count, receiver_id="worker-7"):
        verb = chance.choices(["complete", "abandon", "dead-letter"], [94, 4, 2 if queue == "orders" else 0])[0]
        reason = {} if verb == "complete" else {"reason": chance.choice(REASONS)}
        await api.settle(message, verb, queue, **reason)


async def add_topic(api: Any) -> None:
    """Add a topic with three subscriptions."""
    await api.request_json("PUT", "/queues/warehouse.eu", {"forward_dead_letters_to": "payments"})
    await api.request_json("PUT", "/queues/warehouse", {"forward_to": "warehouse.eu"})
    await api.request_json("PUT", "/topics/shop", {"description": "Everything that happens in the shop."})
    for name, target, expression in (
        ("billing", "invoices", "message.subject == 'order.placed'"),
        ("europe", "warehouse", "message.properties.region == 'eu' && message.priority >= 5"),
        ("mail", "emails", None),
    ):
        settings = {"target_queue": target, "filter": expression}
        await api.request_json("PUT", f"/topics/shop/subscriptions/{name}", settings)


async def add_state(api: Any) -> None:
    """Add a state with five versions."""
    for number in range(5):
        value = {"name": "Ada", "orders": number, "address": {"street": "Long Lane", "number": 12 + number // 3}}
        await api.send("payments", body=number)
        (message,) = await api.receive("payments")
        state = {"key": "customer.17", "if_version": number, "value": value}
        await api.settle(message, "commit", "payments", state=state)
