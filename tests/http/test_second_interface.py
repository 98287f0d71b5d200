"""An interface with other requests, answers and credentials needs nothing of `app/api`, only the layers below it."""

import ast
import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from app.assembly import assemble
from app.domain.access import Grant, Principal, Right
from app.domain.refusals import Overloaded
from app.http.context import AppContext
from app.http.metrics import Metrics
from app.http.metrics_page import MetricsPage
from app.http.queue_statistics import QueueStatistics
from app.http.request_id import RequestIdMiddleware
from app.runtime.byte_budget import ByteBudget
from tests.brokers import OpenBroker, sqlite_broker
from tests.http.second_interface import PATH, SecondInterface, signature
from tests.virtual_clock import VirtualClock

EVERY_RIGHT = Principal("worker", Grant(frozenset(Right)))
ONLY_SENDS = Principal("sender", Grant(frozenset({Right.SEND})))


@dataclass(frozen=True)
class Server:
    """A server with the second interface only, and its clients."""

    broker: OpenBroker
    clock: VirtualClock
    clients: dict[str, Principal]
    http: httpx.AsyncClient

    async def ask(self, action: str, client: str = "worker", signed: str | None = None, **form: str) -> str:
        """Return the answer to a request, with its status ahead of it if that is not 200."""
        headers = {"X-Action": action, "X-Signed-By": f"{client}:{signed or signature(client)}"}
        answer = await self.http.post(PATH, data={"queue": "orders", **form}, headers=headers)
        assert answer.headers["content-type"] == "text/plain"
        return answer.text if answer.status_code == 200 else f"{answer.status_code} {answer.text}"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    clock = VirtualClock()
    async with sqlite_broker("sqlite://", clock) as broker:
        clients = {"worker": EVERY_RIGHT, "sender": ONLY_SENDS}
        application = RequestIdMiddleware(SecondInterface(_context(broker), clients))
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://peeklock.test") as http:
            yield Server(broker, clock, clients, http)


def _context(broker: OpenBroker) -> AppContext:
    metrics = Metrics()
    statistics = QueueStatistics(broker.store.queues, broker.lock_store, broker.counters, broker.clock)
    budget, responses = ByteBudget(1 << 20, Overloaded), broker.response_limits.budget
    page = MetricsPage(metrics, statistics, broker.clock)
    return AppContext(assemble(broker), None, metrics, 1 << 20, 50.0, lambda: False, budget, responses, page)


async def test_a_message_is_sent_received_and_completed(server: Server) -> None:
    assert (await server.ask("Put", text="paint the fence")).startswith("sent ")
    token, text = (await server.ask("Take")).split(" ", 1)
    assert text == "paint the fence"
    assert await server.ask("Take", done=token) == "nothing"
    unknown = await server.ask("Take", done=f"1.{'0' * 32}")
    assert unknown == "409 not completed: No delivery with this lock token is known in this queue."


async def test_refusals_have_the_form_of_the_interface(server: Server) -> None:
    assert await server.ask("Take") == "404 refused: queue-not-found"
    assert await server.ask("Put", client="sender", text="one") == "sent 1"
    assert await server.ask("Take", client="sender") == "403 refused: forbidden"
    assert await server.ask("Give") == "400 no such action"
    assert (await server.ask("Put")).startswith("500 failed: ")  # the endpoint misses the text


async def test_each_request_is_authenticated_by_the_scheme_of_the_interface(server: Server) -> None:
    assert await server.ask("Put", text="one", signed=signature("sender")) == "401 refused: unauthenticated"
    assert await server.ask("Put", text="one", client="stranger") == "401 refused: unauthenticated"


async def test_a_receiver_that_loses_its_credential_while_it_waits_gets_no_message(server: Server) -> None:
    await server.ask("Put", text="the first")
    await server.ask("Take")
    waiting = asyncio.create_task(server.ask("Take", seconds="20"))
    await server.clock.advance(1)
    del server.clients["worker"]
    await server.ask("Put", client="sender", text="the second")
    assert await waiting == "401 refused: unauthenticated"


def test_the_interface_imports_nothing_of_another_one() -> None:
    source = ast.parse((Path(__file__).parent / "second_interface.py").read_text())
    imported = {node.module for node in ast.walk(source) if isinstance(node, ast.ImportFrom) and node.module}
    packages = {module.split(".")[1] for module in imported if module.startswith("app.")}
    assert packages == {"broker", "domain", "http"}
